"""The verb `watch`: what it prints at the end, and with which code it exits."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from slurm_jobs.cli.run_view.follow_run import watch
from slurm_jobs.cli.run_view.live_view import FOOTER
from slurm_jobs.run.polling import INTERVAL_S, PATIENCE_S
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.run_view.scripted_run import Script, lines, nothing, paths, script, slurm
from tests.slurm_jobs.run.fabricate import end
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, queue_row

__all__ = ["paths", "script", "slurm"]


def test_an_interrupt_ends_the_watching_alone_and_says_so(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    script.events = [interrupt]
    assert watch(paths.run_dir, quiet=False) == (None, 130)
    assert "the run continues" in capsys.readouterr().err


def test_watching_a_status_that_stays_unknown_exits_with_3(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.says("squeue", "")
    script.events = [nothing] * int(PATIENCE_S["slurm"] / INTERVAL_S["slurm"])
    assert watch(paths.run_dir, quiet=True)[1] == 3
    assert script.events == []


def test_the_last_view_omits_failures_that_are_printed_at_the_end(
    script: Script, slurm: FakeSlurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30, color_system=None)
    monkeypatch.setattr("slurm_jobs.cli.terminal.console.page_console", lambda: console)

    def fail_one() -> None:
        end(paths, "a", [0], "failed", reason="no space left", failed_rank=0)
        slurm.says("squeue", queue_row("1_0", "FAILED") + queue_row("1_1", "RUNNING"))

    def end_all() -> None:
        end(paths, "a", [1])
        slurm.says("squeue", queue_row("1_0", "FAILED"))

    script.events = [fail_one, end_all]
    watch(paths.run_dir, quiet=False)
    meanwhile, _, last = screen.getvalue().rpartition(FOOTER)
    assert "no space left" in meanwhile
    assert "no space left" not in last


def test_lines_of_change_omit_failures_that_are_printed_at_the_end(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def end_all() -> None:
        end(paths, "a", [0], "failed", reason="no space left", failed_rank=0)
        end(paths, "a", [1])
        slurm.says("squeue", queue_row("1_0", "FAILED"))

    script.events = [end_all]
    watch(paths.run_dir, quiet=False, prints_failures=False)
    assert lines(capsys)[-1] == "a: failed (1/2, 1 failed)"
