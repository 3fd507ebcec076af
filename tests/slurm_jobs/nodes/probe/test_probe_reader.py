"""Probes as they are kept, read back and told, also where a clock was ahead."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.base.files import private_umask
from slurm_jobs.formats.node_records import probe_files as node_records
from slurm_jobs.formats.node_records.probe_files import MAX_KEPT, ProbePaths, keep_probe
from slurm_jobs.nodes.probe import probe_reader
from slurm_jobs.nodes.probe.host_lists import num_named
from slurm_jobs.nodes.probe.probe_reader import newest_probes, probes_of_run
from slurm_jobs.nodes.probe.probe_text import (
    COMPUTE_COLUMNS,
    FILE_COLUMNS,
    compute_row,
    file_row,
    reasons,
)
from slurm_jobs.run.catalogue import list_runs
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


def test_only_a_few_probes_of_a_node_are_kept_and_a_rewritten_one_is_one(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    for second in range(MAX_KEPT + 3):
        for _ in range(2):
            keep_probe(paths, probe("n1", unix_s=1e9 + second), 1)
    kept = paths.files_of("n1")
    assert len(kept) == MAX_KEPT
    assert newest_probes(tmp_path, [])[0].measured_unix_s == 1e9 + MAX_KEPT + 2


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


def test_a_probe_that_ended_early_counts_where_there_is_no_whole_one(tmp_path) -> None:
    paths = ProbePaths(tmp_path)
    early = dataclasses.replace(probe("n1", unix_s=1.79e9), is_partial=True)
    keep_probe(paths, early, 1)
    assert newest_probes(tmp_path, []) == (early,)
    keep_probe(paths, probe("n1", unix_s=1e9), 1)
    assert [p.measured_unix_s for p in newest_probes(tmp_path, [])] == [1e9]


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


def test_keys_of_a_newer_version_are_left_out(tmp_path) -> None:
    path = keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    path.write_text(path.read_text().replace('"cpu"', '"later": 1,\n "cpu"', 1))
    problems: list[str] = []
    assert len(newest_probes(tmp_path, problems)) == 1
    assert problems == []


def test_no_probes_are_no_problem(tmp_path) -> None:
    problems: list[str] = []
    assert newest_probes(tmp_path, problems) == ()
    assert problems == []


def test_the_folder_of_probes_is_no_run(tmp_path) -> None:
    keep_probe(ProbePaths(tmp_path), probe("n1"), 1)
    catalogue = list_runs([tmp_path], number=5)
    assert (catalogue.runs, catalogue.unreadable) == ((), {})


def test_a_node_is_one_row_of_each_table() -> None:
    row = dict(zip(COMPUTE_COLUMNS, compute_row(probe("n1")), strict=True))
    assert row["GPUs"] == "4 x NVIDIA A100-SXM4-40GB"
    assert row["cores usable"] == "15.8 of 16"
    assert row["matmul"] == "250 TFLOP/s bf16, 18.0 TFLOP/s fp32"
    assert row["network: bandwidth, latency"] == "1.20 GB/s, 30.0 us"
    assert row["fastest link"] == "-"
    cells = file_row(probe("n1"))
    assert len(cells) == len(FILE_COLUMNS)
    assert cells[1] == "2.00 GB/s, 1.00 GB/s"
    assert cells[3] == "-"


def test_one_reason_is_reported_once() -> None:
    nodes = [
        dataclasses.replace(probe(name), reasons={"matmul": "no torch", "network": "no torch"})
        for name in ("n1", "n2")
    ]
    assert reasons(nodes) == ["matmul, network not measured on n1, n2: no torch"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("n1", 1), ("n1,n2", 2), ("gpu[01-04,7],fat1", 6), ("r[1-2]n[1-3]", 6), ("a-b.c_d", 1)],
)
def test_a_host_list_is_counted(text, number) -> None:
    assert num_named(text) == number


@pytest.mark.parametrize("text", ["", "n[1-", "n[4-1]", "n1,,n2", "n 1", "n[a]"])
def test_what_is_no_host_list_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"is neither|is not"):
        num_named(text)


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


# Clocks that were ahead, and what is not a folder of a node.


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
