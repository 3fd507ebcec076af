"""A heartbeat is written seldom and read as it was."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.formats.records.heartbeat import Heartbeat, heartbeat_path, read_heartbeat


def test_a_heartbeat_is_written_seldom_and_read_as_it_was(tmp_path: Path) -> None:
    heart = Heartbeat(heartbeat_path(tmp_path, 3), stall_s=1800, collective_s=600)
    first = read_heartbeat(tmp_path, 3)
    for _ in range(1000):
        heart.beat()
    assert read_heartbeat(tmp_path, 3) == first
    heart.begin("a span with a name that is longer than the one before")
    second = read_heartbeat(tmp_path, 3)
    heart.begin("steps")
    third = read_heartbeat(tmp_path, 3)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [b["beats"] for b in (first, second, third)] == [1, 2, 3]
    assert third["doing"] == "steps"
