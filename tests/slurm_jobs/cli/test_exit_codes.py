"""What a file that cannot be read or written means: exit code 3, since 1 is a run that failed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.cli import command_parser
from slurm_jobs.run_folder.ledger import entry_path
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.own_process import ended_process
from tests.slurm_jobs.run.closed import close
from tests.slurm_jobs.run.fabricate import submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    make_fake_slurm(tmp_path / "bin", monkeypatch)
    return submitted_run(tmp_path / "r", 1)


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def _no_entry(path: Path) -> None:
    path.write_text("{}")


def _a_folder(path: Path) -> None:
    """EISDIR: root, who runs the tests at some places, may read whatever has no rights."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [_cut_short, _no_entry, _a_folder, Path.unlink])
@pytest.mark.parametrize("verb", ["status", "watch", "logs", "resume", "cancel"])
def test_a_ledger_that_cannot_be_read_is_3_with_every_verb(
    paths: RunPaths,
    verb: str,
    damage: Callable[[Path], None],
    command: Command,
) -> None:
    damage(entry_path(paths.ledger_dir, 1))
    as_json = {"logs": [], "cancel": ["--json", "--yes"]}.get(verb, ["--json"])
    said = command(verb, paths.run_dir, *as_json, code=3)
    if as_json:
        found = json.loads(said.out)
        assert found["problems"] == []
        assert "000001.json" in found["error"]
    else:
        assert "000001.json" in said.err


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("verb", ["status", "watch", "logs", "resume", "cancel", "report"])
def test_a_ledger_without_its_entries_is_not_taken_for_a_run_without_jobs(
    paths: RunPaths, verb: str, is_there: bool, command: Command
) -> None:
    shutil.rmtree(paths.ledger_dir)
    if is_there:
        paths.ledger_dir.mkdir()
    paths.job_dir("aaaa0001").mkdir(parents=True, exist_ok=True)
    assert f"{paths.ledger_dir} has no entries, but" in command(verb, paths.run_dir, code=3).err
    assert not list(paths.ledger_dir.glob("*"))


def test_a_file_in_place_of_the_runs_is_wrong_input(tmp_path: Path, command: Command) -> None:
    (tmp_path / "runs").touch()
    assert "no run in" in command("runs", "--dir", tmp_path / "runs", code=2).err


@pytest.mark.parametrize("verb", ["status", "watch", "logs", "resume", "cancel", "report"])
def test_a_closed_folder_of_runs_is_3_with_every_verb(
    paths: RunPaths,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(paths.run_dir.parent))
    close(paths.run_dir.parent, monkeypatch)
    assert f"{paths.run_dir.parent}: Permission denied" in command(verb, code=3).err


def test_an_init_that_cannot_write_is_3(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in command("init", "--local", tmp_path / "file" / "configs", code=3).err


@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_result_that_standard_output_does_not_take_exits_with_3(
    paths: RunPaths, as_json: list[str], buffering: str
) -> None:
    with Path("/dev/full").open("w") as full:
        verb = ["runs", "--dir", str(paths.run_dir.parent), *as_json]
        ended = ended_process(verb, full, buffering=buffering)
    assert ended.returncode == 3
    assert ended.stderr == (
        "slurm-jobs: No space left on device; fix that and run the command again, written "
        "files stay intact\n"
    )


@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_json_error_that_cannot_be_printed_goes_to_standard_error(
    tmp_path: Path, buffering: str
) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text("name: s\nstages: {a: {shel: make}}\n")
    with Path("/dev/full").open("w") as full:
        ended = ended_process(["check", str(spec), "--json"], full, buffering=buffering)
    assert ended.returncode == 3
    lines = ended.stderr.splitlines()
    assert lines[0].startswith(f"{spec}:2:14: unknown key `shel`")
    assert lines[-2:] == ["1 problem found", "slurm-jobs: standard output: No space left on device"]


@pytest.mark.parametrize("verb", sorted(command_parser.VERBS))
def test_a_working_directory_that_was_removed_is_named_by_every_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, verb: str
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    words = {
        "check": ["s.yaml"],
        "submit": ["s.yaml"],
        "run": ["s.yaml"],
        "plan": ["s.yaml"],
        "tune": ["s.yaml"],
        "compare": ["a", "b"],
        "scaling": ["a", "b"],
        "completion": ["bash"],
        "debug": ["a"],
        "probe": ["s.yaml"],
    }.get(verb, [])
    assert command(verb, *words, code=3).err == (
        "slurm-jobs: the working directory cannot be used (No such file or directory): it was "
        "removed, or its file system is not mounted; `cd` to an existing folder and run the "
        "command again\n"
    )


@pytest.mark.parametrize("verb", ["status", "watch", "logs", "cancel", "report"])
@pytest.mark.parametrize("folder", ["", "ledger", "plans", "completions/a", "attempts/a"])
def test_a_folder_that_cannot_be_listed_is_3_and_not_taken_for_empty(
    paths: RunPaths,
    verb: str,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    for name in ("attempts/a", "completions/a"):
        (paths.run_dir / name).mkdir(parents=True, exist_ok=True)
    close(paths.run_dir / folder, monkeypatch)
    said = command(verb, paths.run_dir, *(["--yes"] if verb == "cancel" else []), code=3).err
    assert str(paths.run_dir / folder) in said
    assert "Permission denied" in said


@pytest.mark.parametrize(
    "verb", ["status", "watch", "logs", "resume", "cancel", "report", "verify"]
)
def test_a_run_whose_file_system_is_away_is_3_and_names_what_is_missing(
    tmp_path: Path, command: Command, verb: str
) -> None:
    run = tmp_path / "away/runs/words-20250101-000000-aaaa"
    assert f"{run} cannot be read: {tmp_path}/away: there is no such folder" in (
        command(verb, run, code=3).err
    )
