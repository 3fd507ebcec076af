"""A probe of another shape or version: what is read of it, and what is refused."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.nodes.probe.probe_reader import newest_probes
from tests.slurm_jobs.nodes.fabricate_probes import probe


@pytest.mark.parametrize(
    "details",
    [
        {"network": [{"with": "n9\x1b[2J", "bytes_per_s": 1.0}]},
        {"link": [{"name": "eth0", "of": ["\x07"]}]},
        {"cores": {"python\x1b[2J": "3.11"}},
    ],
)
def test_a_record_with_text_that_steers_a_terminal_is_not_read(tmp_path, details) -> None:
    keep_probe(ProbePaths(tmp_path), probe("n1", details), 1)
    problems: list[str] = []
    assert newest_probes(tmp_path, problems) == ()
    assert len(problems) == 1
    assert problems[0].isprintable()


def test_keys_of_a_newer_version_are_left_out(tmp_path) -> None:
    path = keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    path.write_text(path.read_text().replace('"cpu"', '"later": 1,\n "cpu"', 1))
    problems: list[str] = []
    assert len(newest_probes(tmp_path, problems)) == 1
    assert problems == []


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"numbers": None},
        {"numbers": {"cores_usable": "x"}},
        {"numbers": {"cores_usable": float("inf")}},
        {"details": None},
        {"details": {"network": {"partner": "n2"}}},
        {"num_cores": None},
        {"measured_unix_s": "x"},
        {"reasons": ["none"]},
        {"gpus": [{"name": "V100"}]},
    ],
    ids=str,
)
def test_a_probe_of_another_shape_is_left_out_and_reported(tmp_path, changes) -> None:
    """The folder outlives runs: a newer version may have written into it."""
    path = keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    problems: list[str] = []
    assert newest_probes(tmp_path, problems) == ()
    assert len(problems) == 1
    assert "not read as a probe" in problems[0]
