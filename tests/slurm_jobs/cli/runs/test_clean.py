"""The table, the question and the options of `clean`."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.cleanable import cleanable_run, files_gone
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "120")
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return cleanable_run(tmp_path / "runs/shapes-20261101-101010-abcd")


def make_old(paths: RunPaths, days: float) -> None:
    """Let everything in a run be so old."""
    then = time.time() - days * 86_400
    for path in [paths.run_dir, *paths.run_dir.rglob("*")]:
        os.utime(path, (then, then))


def test_a_dry_run_shows_and_removes_nothing(paths: RunPaths, command: Command) -> None:
    shown = command("clean", paths.run_dir, "--dry-run").result
    assert "parts of preprocess, checkpoints of train" in shown
    assert "records, report, model, metrics, data, logs" in shown
    assert shown.endswith("nothing was removed: this was a dry run\n")
    assert files_gone(paths) == set()


def test_without_a_terminal_yes_is_needed(paths: RunPaths, command: Command) -> None:
    refused = command("clean", paths.run_dir, code=2)
    assert "there is no terminal; add --yes" in refused.err
    assert files_gone(paths) == set()
    assert "in 1 run\n" in command("clean", paths.run_dir, "--yes").result
    assert files_gone(paths)
    nothing = command("clean", paths.run_dir).result
    assert nothing.startswith("there is nothing to remove. To remove more, name what stays")


@pytest.mark.parametrize(("answer", "is_removed"), [("", False), ("no\n", False), ("y\n", True)])
def test_a_terminal_is_asked(
    paths: RunPaths,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    *,
    is_removed: bool,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    asked = command("clean", paths.run_dir, code=0)
    assert asked.err.startswith("free ")
    assert " in 1 run? [y/N] " in asked.err
    assert bool(files_gone(paths)) is is_removed


def test_runs_are_chosen_by_age_name_and_status(
    paths: RunPaths, command: Command, tmp_path: Path
) -> None:
    young = cleanable_run(tmp_path / "runs/shapes-20261102-101010-abcd")
    other = cleanable_run(tmp_path / "runs/words-20261101-101010-abcd")
    failed = cleanable_run(tmp_path / "runs/shapes-20261103-101010-abcd", complete=("preprocess",))
    for each, days in ((paths, 40), (young, 20), (other, 40), (failed, 40)):
        make_old(each, days)
    options = ("--older-than", "30d", "--name", "shapes*", "--status", "completed")
    found = json.loads(command("clean", *options, "--dry-run", "--json").result)
    assert [run["run_dir"] for run in found["runs"]] == [str(paths.run_dir)]
    found = json.loads(command("clean", "--older-than", "2w", "--yes", "--json").result)
    removed = {run["run_dir"]: run["is_removed"] for run in found["runs"]}
    assert removed == {str(each.run_dir): True for each in (paths, young, other)}
    assert files_gone(failed) == set()


def test_links_and_other_users_runs_are_left_out_of_a_search(
    paths: RunPaths, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(paths, 40)
    elsewhere = paths.run_dir.rename(tmp_path / "elsewhere")
    paths.run_dir.symlink_to(elsewhere)
    assert command("clean", "--older-than", "30d", "--yes").result == "there is nothing to remove\n"
    paths.run_dir.unlink()
    elsewhere.rename(paths.run_dir)
    monkeypatch.setattr("slurm_jobs.cli.runs.clean.os.getuid", lambda: 12345)
    assert command("clean", "--older-than", "30d", "--yes").result == "there is nothing to remove\n"
    assert files_gone(paths) == set()


def test_a_named_run_that_lives_is_an_error_and_an_old_one_is_left_out(
    paths: RunPaths, command: Command, slurm: FakeSlurm, tmp_path: Path
) -> None:
    slurm.says("squeue", queue_row("4", "RUNNING"))
    refused = command("clean", paths.run_dir, "--yes", code=2)
    assert "has jobs that have not ended: 4 (RUNNING)" in refused.out
    assert "nothing to remove" not in refused.out
    make_old(paths, 40)
    assert " is not cleaned: " in command("clean", "--older-than", "30d", "--yes", code=0).out
    assert files_gone(paths) == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --older-than 30d"),
        (("--name", "x*"), "give --older-than 30d"),
        (("--older-than", "30"), "such as 30d"),
        (("--older-than", "30d"), "which does not exist"),
        (("r", "--older-than", "30d"), "RUN names the runs"),
        (("r", "--keep", "modle"), "no kind `modle`; did you mean `model`"),
        (("r", "--all", "--keep", "model"), "give one of both"),
    ],
)
def test_unclear_requests_are_refused(
    command: Command, words: tuple[str, ...], message: str
) -> None:
    assert message in command("clean", *words, code=2).err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "runs").mkdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    command("clean", precious, "--all", "--yes", code=2)
    assert (precious / "file").exists()
