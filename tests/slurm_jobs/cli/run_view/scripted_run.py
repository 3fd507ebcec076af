"""A run whose life is told by a script: each wait between two looks is one event of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row


class Script:
    """Stands in for the module `time`: a sleep plays the next event, and moves the clock on."""

    def __init__(self) -> None:
        self.events: list[Callable[[], None]] = []
        self.now_s = 1_763_651_000.0
        self.slept_s: list[float] = []

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s.append(seconds)
        if not self.events:
            pytest.fail("the run has ended, and is still watched")
        self.events.pop(0)()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    played = Script()
    monkeypatch.setattr("slurm_jobs.cli.run_view.follow_run.time", played)
    monkeypatch.setattr("slurm_jobs.run.polling.time", played)
    monkeypatch.setattr("slurm_jobs.run.kept_answers.time", played)
    return played


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("squeue", queue_row("1_0", "RUNNING") + queue_row("1_1", "PENDING", "Priority"))
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run whose array of two was submitted as job 1."""
    return submitted_run(tmp_path / "r", 2)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, without the times at the front."""
    return [re.sub(r"^\[ *[\d.]+ s\] ", "", line) for line in capsys.readouterr().out.splitlines()]


def nothing() -> None:
    """Nothing happens between two looks."""
