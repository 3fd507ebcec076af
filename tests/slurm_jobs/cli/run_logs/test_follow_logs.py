"""Logs that are followed while slices run and fail: each wait between two looks is one event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

LOOK_S = 10.0
"""Longer than an answer of squeue is reused."""


class Script:
    """Stands in for the module `time`: a sleep plays the next event, and moves the clock on."""

    def __init__(self) -> None:
        self.events: list[Callable[[], None]] = []
        self.now_s = 1_763_651_000.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, _seconds: float) -> None:
        self.now_s += LOOK_S
        if not self.events:
            pytest.fail("the stages have ended, and are still followed")
        self.events.pop(0)()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    played = Script()
    monkeypatch.setattr("slurm_jobs.cli.run_logs.follow_logs.time", played)
    monkeypatch.setattr("slurm_jobs.run.kept_answers.time", played)
    return played


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("squeue", queue_row("1_0", "RUNNING") + queue_row("1_1", "RUNNING"))
    return fake


@pytest.fixture
def paths(tmp_path: Path, slurm: FakeSlurm) -> RunPaths:
    """A run whose first stage has two running slices, and whose other stage was not submitted."""
    paths = make_run(tmp_path / "r", {"a": 2, "b": 1})
    submit(paths, "a", 2, "1")
    paths.logs_dir("a").mkdir(parents=True)
    return paths


def write(paths: RunPaths, index: int, text: str) -> None:
    with paths.rank_log("a", index, 1, 0).open("a") as stream:
        stream.write(text)


def test_failures_are_printed_when_they_happen_with_their_logs(
    script: Script, slurm: FakeSlurm, paths: RunPaths, command: Command
) -> None:
    write(paths, 0, "fine\n")
    write(paths, 1, "row 1\nrow 2\n")

    def fail_one() -> None:
        write(paths, 1, "no space left\n")
        end(paths, "a", [1], "failed", reason="it broke", failed_rank=0)
        slurm.says("squeue", queue_row("1_0", "RUNNING") + queue_row("1_1", "FAILED"))

    script.events = [lambda: None, fail_one, lambda: end(paths, "a", [0])]
    followed = command("logs", paths.run_dir, "--failed", "--follow", "--tail", "2")
    assert followed.out.splitlines() == [
        "a slice 1 failed (squeue: FAILED): it broke",
        "==> a/s00001.a0001.rank-00000.log <==",
        "row 2",
        "no space left",
    ]
    assert followed.err == "no slice of r has failed so far\n"
    assert script.events == []


def test_without_a_failure_this_is_said_at_the_end(
    script: Script, slurm: FakeSlurm, paths: RunPaths, command: Command
) -> None:
    write(paths, 0, "fine\n")
    script.events = [lambda: end(paths, "a", [0, 1])]
    followed = command("logs", paths.run_dir, "a", "--failed", "-f")
    assert followed.out == ""
    assert followed.err == "no slice of `a` has failed so far\nno slice of `a` failed\n"


def test_an_empty_log_is_called_so_at_once_and_at_the_end(
    script: Script, slurm: FakeSlurm, paths: RunPaths, command: Command
) -> None:
    write(paths, 0, "")
    script.events = [lambda: end(paths, "a", [0, 1])]
    followed = command("logs", paths.run_dir, "a", "--slice", "0", "--follow")
    assert followed.out == ""
    assert followed.err == (
        "the log of `a` slice 0 is empty so far\nthe log of `a` slice 0 is empty\n"
    )


def test_without_a_stage_what_runs_is_followed_although_something_failed(
    script: Script, slurm: FakeSlurm, paths: RunPaths, command: Command
) -> None:
    end(paths, "a", [1], "failed", reason="it broke")
    slurm.says("squeue", queue_row("1_0", "RUNNING") + queue_row("1_1", "FAILED"))
    write(paths, 0, "row 1\n")

    def go_on() -> None:
        write(paths, 0, "row 2\n")
        end(paths, "a", [0])

    script.events = [go_on]
    followed = command("logs", paths.run_dir, "--follow")
    assert followed.out.splitlines() == [
        "==> a/s00000.a0001.rank-00000.log <==",
        "row 1",
        "row 2",
    ]
