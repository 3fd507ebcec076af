"""A note on a run is written, replaced, printed and removed, and shown by `status`."""

from __future__ import annotations

import json
import stat

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.noted_run import run

__all__ = ["run"]


def test_a_note_is_written_replaced_printed_and_removed(run: RunPaths, command: Command) -> None:
    assert "no note on runs/shapes" in command("note", "shapes").result
    assert command("note", "shapes", "first try").result == "first try\n"
    assert (
        command("note", "shapes", "second", "try,", " lr  1e-4").result == "second try, lr 1e-4\n"
    )
    assert run.note.read_text() == "second try, lr 1e-4\n"
    assert stat.S_IMODE(run.note.stat().st_mode) == 0o600
    assert json.loads(command("note", "shapes", "--json").result)["note"] == "second try, lr 1e-4"
    assert command("note", "shapes", "--remove").result.startswith("removed the note on runs/")
    assert not run.note.exists()


def test_status_shows_the_note_in_text_and_json(run: RunPaths, command: Command) -> None:
    _ = command("note", "shapes", "baseline [bold]lr").result
    assert "note: baseline [bold]lr\n" in command("status", "shapes").out
    assert json.loads(command("status", "shapes", "--json").out)["note"] == "baseline [bold]lr"


def test_only_the_owner_of_a_run_writes_its_note(
    run: RunPaths, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = run.run_dir.stat().st_uid + 1
    monkeypatch.setattr("os.getuid", lambda: uid)
    assert "only its owner" in command("note", "shapes", "mine", code=2).err
    assert "no note" in command("note", "shapes").result


def test_a_note_without_its_run_is_an_error_with_the_right_order(
    run: RunPaths, command: Command
) -> None:
    error = command("note", "slow machine", code=2).err
    assert "if 'slow machine' is the note, name the run before it: note RUN 'slow machine'" in error
    assert not run.note.exists()
