"""Who answers the question is a text of the test's own that says it is a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from slurm_jobs.run_folder.ledger import read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    fake.says("squeue", queue_row("1", "RUNNING"))
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    made = make_run(tmp_path / "r", {"a": 1})
    submit(made, "a", 1, "1")
    return made


def cancel(
    paths: RunPaths, answer: str, monkeypatch: pytest.MonkeyPatch, *words: str, expect: int = 0
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    run_command("cancel", str(paths.run_dir), *words, code=expect)


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yeah no"])
def test_all_but_a_yes_is_a_no_and_ctrl_d_too(
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    cancel(paths, answer, monkeypatch)
    said = capsys.readouterr()
    assert said.out == "nothing was cancelled\n"
    assert "cancel r? [y/N] " in said.err
    cancel(paths, answer, monkeypatch, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found == {"run_dir": str(paths.run_dir), "cancelled": []}
    assert slurm.calls("scancel") == []


def test_a_yes_cancels_and_the_question_is_no_part_of_the_json(
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cancel(paths, "Yes\n", monkeypatch, "--json")
    assert json.loads(capsys.readouterr().out)["cancelled"] == ["1"]
    assert len(slurm.calls("scancel")) == 1


@pytest.mark.parametrize("words", [[], ["--stage", "a"]])
def test_where_there_is_nothing_to_cancel_nobody_is_asked(
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    end(paths, "a", [0])
    slurm.says("squeue", "")
    monkeypatch.setattr(Terminal, "isatty", lambda _: not words)
    before = len(read_ledger(paths.ledger_dir))
    cancel(paths, "", monkeypatch, *words)
    assert capsys.readouterr() == ("nothing to cancel: no job is queued or running\n", "")
    cancel(paths, "", monkeypatch, *words, "--json")
    assert json.loads(capsys.readouterr().out)["cancelled"] == []
    assert (slurm.calls("scancel"), len(read_ledger(paths.ledger_dir))) == ([], before)


def test_where_nobody_can_answer_what_lives_needs_a_yes(
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    cancel(paths, "", monkeypatch, expect=2)
    assert "there is no terminal; add --yes" in capsys.readouterr().err
    assert slurm.calls("scancel") == []
    cancel(paths, "", monkeypatch, "--yes")
    assert len(slurm.calls("scancel")) == 1


def test_a_misspelt_stage_is_told_before_anybody_is_asked(
    slurm: FakeSlurm,
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cancel(paths, "y\n", monkeypatch, "--stage", "b", expect=2)
    said = capsys.readouterr().err
    assert "no stage `b`" in said
    assert "[y/N]" not in said
    assert slurm.calls("squeue") == []
