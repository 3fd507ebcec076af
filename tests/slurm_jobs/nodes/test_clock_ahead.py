"""A node whose clock was ahead can be probed again, and what it wrote then outranks nothing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.nodes import probe_records
from slurm_jobs.shared.node_records import MAX_KEPT, ProbePaths, keep_probe


@dataclass
class _Probe:
    node: str
    run_id: str
    measured_unix_s: float


def test_a_probe_does_not_remove_its_own_record(tmp_path: Path) -> None:
    paths = ProbePaths(tmp_path)
    for number in range(MAX_KEPT):
        ahead: Any = _Probe("n1", "old", 2.2e9 + number)
        keep_probe(paths, ahead, 1)
    right: Any = _Probe("n1", "new", 1.8e9)
    kept = keep_probe(paths, right, 1)
    assert kept.exists()
    assert len(paths.files_of("n1")) == MAX_KEPT


def test_a_record_of_a_time_to_come_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f".probes-{os.getuid()}" / "n1"
    folder.mkdir(parents=True)
    at = {"2.json": time.time() + 1e8, "1.json": time.time()}
    for name in at:
        (folder / name).write_text("{}")

    def read(path: Path) -> Any:
        return SimpleNamespace(is_partial=False, measured_unix_s=at[path.name], name=path.name)

    monkeypatch.setattr(probe_records, "read_probe", read)
    problems: list[str] = []
    found: Any = probe_records.newest_probes(tmp_path, problems)
    assert [probe.name for probe in found] == ["1.json"]
    assert len(problems) == 1
    assert "its moment is still to come" in problems[0]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    own = tmp_path / f".probes-{os.getuid()}"
    own.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.json").write_text("{")
    (own / "n9").symlink_to(elsewhere)
    problems: list[str] = []
    assert probe_records.newest_probes(tmp_path, problems) == ()
    assert problems == []


def test_what_is_no_folder_of_a_node_is_nobodys_problem(tmp_path: Path) -> None:
    folder = tmp_path / f".probes-{os.getuid()}"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    problems: list[str] = []
    assert probe_records.newest_probes(tmp_path, problems) == ()
    assert problems == []
