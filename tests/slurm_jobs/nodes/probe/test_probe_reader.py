"""Probes as they are read back, also where a clock was ahead, or a file is unexpected."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.formats.node_records import probe_files as node_records
from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.nodes.probe import probe_reader
from slurm_jobs.nodes.probe.probe_reader import newest_probes, probes_of_run
from tests.slurm_jobs.nodes.fabricate_probes import probe
from tests.slurm_jobs.run.closed import close


def test_the_newest_probe_of_each_node_is_read(tmp_path) -> None:
    for node, unix_s in (("n1", 1e9), ("n1", 1.79e9), ("n1", 1.5e9), ("n2", 1e9)):
        keep_probe(ProbePaths(tmp_path), probe(node, unix_s=unix_s), 1)
    problems: list[str] = []
    found = newest_probes(tmp_path, problems)
    assert [(p.node, p.measured_unix_s) for p in found] == [("n1", 1.79e9), ("n2", 1e9)]
    assert found[0] == probe("n1", unix_s=1.79e9)
    assert problems == []


def test_a_run_finds_its_own_probes_alone(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    keep_probe(paths, probe("n1"), 1)
    keep_probe(paths, dataclasses.replace(probe("n1", unix_s=1.79e9), run_id="other-1"), 1)
    run_id = probe("n1").run_id
    (tmp_path / run_id).mkdir()
    (found,) = probes_of_run(tmp_path, run_id, [])
    assert found.measured_unix_s == 1e9


def test_a_record_that_another_user_names_after_a_run_is_none_of_it(tmp_path) -> None:
    run_id = probe("n1").run_id
    (tmp_path / run_id).mkdir()
    path = keep_probe(ProbePaths(tmp_path), probe("n1", unix_s=1.79e9), 1)
    others = tmp_path / f".probes-{os.getuid() + 1}/n1"
    path.parent.rename(others.parent.parent / "moved")
    others.parent.mkdir()
    (tmp_path / "moved").rename(others)
    assert probes_of_run(tmp_path, run_id, []) == ()


def test_a_probe_that_ended_early_counts_where_there_is_no_whole_one(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    early = dataclasses.replace(probe("n1", unix_s=1.79e9), is_partial=True)
    keep_probe(paths, early, 1)
    assert newest_probes(tmp_path, []) == (early,)
    keep_probe(paths, probe("n1", unix_s=1e9), 1)
    assert [p.measured_unix_s for p in newest_probes(tmp_path, [])] == [1e9]


def _keep_as(uid: int, runs_dir: Path, node: str) -> None:
    """In a process of its own; what it could not do shows in its exit code."""
    os.setgid(uid)
    os.setuid(uid)
    keep_probe(ProbePaths(runs_dir), probe(node, unix_s=1e9 + uid), 1)
    problems: list[str] = []
    seen = {p.node for p in newest_probes(runs_dir, problems)}
    os._exit(0 if node in seen and not problems else 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_users_who_share_a_folder_of_runs_read_the_probes_of_each_other() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs_dir = Path(folder) / "runs"
        runs_dir.mkdir()
        Path(folder).chmod(0o755)
        runs_dir.chmod(0o1777)
        fork = multiprocessing.get_context("fork")
        for uid, node in ((60001, "n1"), (60002, "n1"), (60002, "n2")):
            child = fork.Process(target=_keep_as, args=(uid, runs_dir, node))
            child.start()
            child.join(30)
            assert child.exitcode == 0
        found = newest_probes(runs_dir, [])
        assert [(p.node, p.measured_unix_s - 1e9) for p in found] == [("n1", 60002), ("n2", 60002)]


def test_unreadable_probes_of_one_user_are_reported_and_the_others_count(
    tmp_path, monkeypatch
) -> None:
    keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    closed = tmp_path / ".probes-60001"
    closed.mkdir()
    close(closed, monkeypatch)
    problems: list[str] = []
    assert [p.node for p in newest_probes(tmp_path, problems)] == ["n1"]
    assert problems == [f"{closed}: probes of nodes not read: Permission denied"]


def test_a_damaged_probe_is_a_problem_and_the_one_before_it_counts(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    keep_probe(paths, probe("n1"), 1)
    keep_probe(paths, probe("n1", unix_s=1.79e9), 1).write_text("{")
    problems: list[str] = []
    # The report names the file; it does not fail, nor take an older number for the newest.
    assert [p.measured_unix_s for p in newest_probes(tmp_path, problems)] == [1e9]
    assert len(problems) == 1


def test_no_probes_are_no_problem(tmp_path) -> None:
    problems: list[str] = []
    assert newest_probes(tmp_path, problems) == ()
    assert problems == []


@pytest.fixture
def planted(tmp_path):
    """Puts something under a record's name into a node's folder, and reads them all."""

    def plant(put):
        keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
        folder = ProbePaths(tmp_path).node_dir("n2")
        folder.mkdir()
        put(folder / "0000000000000001.run.a0001.json")
        problems: list[str] = []
        return [found.node for found in newest_probes(tmp_path, problems)], problems

    return plant


def damaged(**values):
    record = dataclasses.asdict(probe("n2")) | values
    return lambda path: path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.write_text("[" * 200_000),
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to("/etc/hostname"),
        damaged(details={"network": [{}]}),
        damaged(num_cores=10**400),
        damaged(measured_unix_s=9e19),
        damaged(node="n1"),
        damaged(cpu="\x1b]0;x\x07"),
        damaged(reasons={"network": "\x1b[2J"}),
    ],
)
def test_unexpected_files_in_a_folder_of_probes_do_not_stop_a_report(planted, put):
    nodes, problems = planted(put)
    assert nodes == ["n1"]
    assert len(problems) == 1
    assert "not read as a probe" in problems[0]


def test_no_control_character_of_a_name_reaches_a_terminal(planted):
    def put(path):
        path.with_name("0000000000000001.\x1b]0;x\x07.a0001.json").write_text("{")

    assert "\x1b" not in planted(put)[1][0]


def test_a_record_that_another_user_put_there_is_not_read(planted, monkeypatch):
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)  # so is the folder's name
    monkeypatch.setattr(
        node_records,
        "make_node_dir",
        lambda paths, node: paths.node_dir(node).mkdir(parents=True, exist_ok=True),
    )
    nodes, problems = planted(damaged())
    assert nodes == []
    assert f"it is user {mine}'s, in the folder of another one" in problems[0]


def test_a_record_with_a_future_time_is_left_out_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f".probes-{os.getuid()}" / "n1"
    folder.mkdir(parents=True)
    at = {"2.json": time.time() + 1e8, "1.json": time.time()}
    for name in at:
        (folder / name).write_text("{}")

    def read(path: Path) -> Any:
        return SimpleNamespace(is_partial=False, measured_unix_s=at[path.name], name=path.name)

    monkeypatch.setattr(probe_reader, "read_probe", read)
    problems: list[str] = []
    found: Any = probe_reader.newest_probes(tmp_path, problems)
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
    assert probe_reader.newest_probes(tmp_path, problems) == ()
    assert problems == []


def test_what_is_no_folder_of_a_node_is_ignored(tmp_path: Path) -> None:
    folder = tmp_path / f".probes-{os.getuid()}"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    problems: list[str] = []
    assert probe_reader.newest_probes(tmp_path, problems) == ()
    assert problems == []
