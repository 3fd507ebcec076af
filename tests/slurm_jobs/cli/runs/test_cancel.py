"""Who answers the question is a text of the test's own that says it is a terminal."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.run_folder.ledger import read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.runs.cancelled_run import Terminal, cancel, paths, slurm
from tests.slurm_jobs.run.fabricate import end
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["cancel", "paths", "slurm"]


def test_a_yes_cancels_and_the_question_is_no_part_of_the_json(
    cancel: Command, slurm: FakeSlurm
) -> None:
    assert json.loads(cancel("Yes\n", "--json").out)["cancelled"] == ["1"]
    assert len(slurm.calls("scancel")) == 1


@pytest.mark.parametrize("words", [[], ["--stage", "a"]])
def test_with_nothing_to_cancel_there_is_no_question(
    cancel: Command,
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    end(paths, "a", [0])
    slurm.says("squeue", "")
    monkeypatch.setattr(Terminal, "isatty", lambda _: not words)
    before = len(read_ledger(paths.ledger_dir))
    assert cancel("", *words) == (0, "nothing to cancel: no job is queued or running\n", "")
    assert json.loads(cancel("", *words, "--json").out)["cancelled"] == []
    assert (slurm.calls("scancel"), len(read_ledger(paths.ledger_dir))) == ([], before)


def test_without_a_terminal_cancelling_live_jobs_needs_yes(
    cancel: Command, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    assert "there is no terminal; add --yes" in cancel("", code=2).err
    assert slurm.calls("scancel") == []
    cancel("", "--yes")
    assert len(slurm.calls("scancel")) == 1


def test_a_misspelt_stage_is_refused_before_the_question(cancel: Command, slurm: FakeSlurm) -> None:
    said = cancel("y\n", "--stage", "b", code=2).err
    assert "no stage `b`" in said
    assert "[y/N]" not in said
    assert slurm.calls("squeue") == []
