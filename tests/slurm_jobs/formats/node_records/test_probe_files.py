"""Files of probes: how many are kept, who may read them, and what is never followed."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import private_umask
from slurm_jobs.formats.node_records.probe_files import MAX_KEPT, ProbePaths, keep_probe
from slurm_jobs.nodes.probe.probe_reader import newest_probes
from tests.slurm_jobs.nodes.fabricate_probes import probe


def test_only_a_few_probes_of_a_node_are_kept_and_a_rewritten_one_is_one(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    for second in range(MAX_KEPT + 3):
        for _ in range(2):
            keep_probe(paths, probe("n1", unix_s=1e9 + second), 1)
    kept = paths.files_of("n1")
    assert len(kept) == MAX_KEPT
    assert newest_probes(tmp_path, [])[0].measured_unix_s == 1e9 + MAX_KEPT + 2


@pytest.mark.parametrize(
    ("of_runs", "of_folders", "of_files"),
    [(0o700, 0o700, 0o600), (0o755, 0o755, 0o644), (0o2770, 0o2750, 0o640), (0o777, 0o755, 0o644)],
)
def test_records_are_readable_like_runs_but_only_their_user_may_write_them(
    tmp_path, of_runs, of_folders, of_files
) -> None:
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    runs_dir.chmod(of_runs)
    paths = ProbePaths(runs_dir)
    with private_umask():  # as in a job
        path = keep_probe(paths, probe("n1"), 1)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (paths.own_dir, path.parent, path)]
    assert modes == [of_folders, of_folders, of_files]


def test_a_link_in_place_of_the_folder_of_probes_is_refused(tmp_path):
    ledger = tmp_path / "run/ledger"
    ledger.mkdir(parents=True)
    entries = [ledger / f"{number:06d}.json" for number in range(9)]
    for entry in entries:
        entry.write_text("{}")
    paths = ProbePaths(tmp_path)
    paths.own_dir.mkdir()
    paths.node_dir("n1").symlink_to(ledger)
    with pytest.raises(OSError, match=r"a link, or not a folder.*n1"):
        keep_probe(paths, probe("n1"), 1)
    paths.node_dir("n1").unlink()
    paths.own_dir.rmdir()
    paths.own_dir.symlink_to(tmp_path / "run")
    with pytest.raises(OSError, match="probes-"):
        keep_probe(paths, probe("ledger"), 1)
    assert sorted(ledger.iterdir()) == entries


def test_other_files_next_to_probe_records_are_not_removed(tmp_path):
    paths = ProbePaths(tmp_path)
    keep_probe(paths, probe("n1"), 1)
    others = [paths.node_dir("n1") / f"{number}.json" for number in range(9)]
    for other in others:
        other.write_text("{}")
    keep_probe(paths, probe("n1"), 2)
    assert all(other.exists() for other in others)


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
