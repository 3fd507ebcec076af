"""The note of a run, which may be edited by hand, and may be one that cannot be written."""

from __future__ import annotations

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.runs.noted_run import run

__all__ = ["command", "run"]


def test_a_note_that_was_edited_by_hand_is_shown_on_one_line(
    run: RunPaths, command: Command
) -> None:
    run.note.write_text("two\nlines \x1b[31mred\n")
    assert command("note", "shapes").result == "two lines \\x1b[31mred\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((" ",), "it is empty"),
        (("x" * 501,), "it has 501 characters"),
        (("a\x1b[2Jb",), "cannot be printed"),
        (("text", "--remove"), "give one of both"),
    ],
)
def test_a_note_that_cannot_be_written_leaves_the_old_one(
    run: RunPaths, command: Command, words: tuple[str, ...], problem: str
) -> None:
    _ = command("note", "shapes", "old").result
    assert problem in command("note", "shapes", *words, code=2).err
    assert run.note.read_text() == "old\n"
