"""The limit of a node: real processes that share it, by the real clock."""

from __future__ import annotations

import multiprocessing
import struct
import time
from pathlib import Path

import pytest

from pipeline.stage_in.pace import Pace
from slurm_jobs.base.errors import StageStoppedError


def go_on() -> None:
    pass


def take_forty_turns(path: Path) -> None:
    pace = Pace(path, 1e6)
    for _ in range(40):
        pace.wait(5_000, go_on)


def test_processes_share_the_limit(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=take_forty_turns, args=(tmp_path / "pace",)) for _ in range(2)
    ]
    start_s = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    # 400,000 bytes at 1 MB/s; the last turn need not be waited for.
    assert time.monotonic() - start_s >= 0.39


@pytest.mark.parametrize("content", [struct.pack("<d", 1e12), b"abc", b""])
def test_files_of_another_boot_or_a_crash_delay_no_copy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pace"
    path.write_bytes(content)
    start_s = time.monotonic()
    Pace(path, 1e9).wait(1, go_on)
    assert time.monotonic() - start_s < 30


def test_no_limit_needs_no_file(tmp_path: Path) -> None:
    Pace(tmp_path / "pace", None).wait(10**12, go_on)
    assert list(tmp_path.iterdir()) == []


def test_a_wait_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    pace = Pace(tmp_path / "pace", 1.0)
    pace.wait(50, go_on)

    def stop() -> None:
        raise StageStoppedError

    with pytest.raises(StageStoppedError):
        pace.wait(50, stop)


def test_blocks_are_small_where_little_may_be_read(tmp_path: Path) -> None:
    assert Pace(tmp_path / "pace", 1e6).block_bytes == 250_000
    assert Pace(tmp_path / "pace", 1e9).block_bytes == Pace(tmp_path / "pace", None).block_bytes
    assert Pace(tmp_path / "pace", 1.0).block_bytes == 4096
