"""A run's life is told by a script: each wait between two looks is one event of it.

squeue and sacct are programs of the test's own; no time passes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from slurm_jobs.api import Run
from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.cli.run_view.follow_run import lines_of, watch
from slurm_jobs.cli.runs.watch import end_lines
from slurm_jobs.run.polling import INTERVAL_S, PATIENCE_S, is_over
from slurm_jobs.run_folder.ledger import entry_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.slice_status import Status
from tests.slurm_jobs.cli.run_view.scripted_run import Script, lines, nothing, paths, script, slurm
from tests.slurm_jobs.cli.statuses import seen, stage
from tests.slurm_jobs.run.fabricate import end, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import DATABASE_DOWN, FakeSlurm, account_row, queue_row

__all__ = ["paths", "script", "slurm"]


def test_lines_of_change_are_printed_until_the_run_ends(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    script.events = [
        nothing,
        lambda: end(paths, "a", [0]),
        lambda: end(paths, "a", [1]),
    ]
    status, code = watch(paths.run_dir, quiet=False)
    assert lines(capsys) == [
        "a: running (0/2, 1 running, 1 waiting)",
        "a: waiting (1/2, 1 waiting)",
        "a: completed (2/2)",
    ]
    assert (status and status.status, code) == ("completed", 0)
    assert set(script.slept_s) == {INTERVAL_S["slurm"]}


def test_a_lone_watcher_queries_slurm_at_each_interval(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    script.events = [nothing, nothing, lambda: end(paths, "a", [0, 1])]
    watch(paths.run_dir, quiet=True)
    assert len(slurm.calls("squeue")) == 3  # the fourth look saw records that prove all


def test_a_failure_is_printed_when_it_happens_and_decides_the_exit_code(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_one() -> None:
        end(paths, "a", [0], "failed", reason="no space left", failed_rank=0)
        slurm.says("squeue", queue_row("1_0", "FAILED") + queue_row("1_1", "RUNNING"))

    def end_all() -> None:
        end(paths, "a", [1])
        slurm.says("squeue", queue_row("1_0", "FAILED"))

    script.events = [fail_one, end_all]
    status, code = watch(paths.run_dir, quiet=False)
    printed = lines(capsys)
    assert printed.count("a slice 0 failed (squeue: FAILED): no space left") == 1
    assert code == 1
    assert status is not None
    assert end_lines(paths.run_dir, status)[-1].endswith(f"resume {paths.run_dir}")


def test_each_failure_is_printed_once_when_several_come_at_once(
    script: Script, slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = submitted_run(tmp_path / "many", 14)
    entry = entry_path(paths.ledger_dir, 1)

    def queue(state: str, of_the_last: str) -> None:
        rows = [queue_row(f"1_{i}", state) for i in range(13)]
        slurm.says("squeue", "".join(rows) + queue_row("1_13", of_the_last))

    def fail(slices: Iterable[int]) -> None:
        end(paths, "a", [*slices], "failed", reason="no space left")

    def back_with_other_states() -> None:
        entry.with_suffix(".away").rename(entry)
        queue("FAILED", "RUNNING")

    def fail_last() -> None:
        fail([13])
        queue("FAILED", "FAILED")

    queue("COMPLETING", "RUNNING")
    script.events = [
        lambda: fail(range(2)),
        lambda: fail(range(2, 13)),
        lambda: entry.rename(entry.with_suffix(".away")),  # the last look is shown once more
        back_with_other_states,
        fail_last,
    ]
    watch(paths.run_dir, quiet=False)
    printed = [line for line in lines(capsys) if "no space left" in line]
    told = [line.split()[2] for line in printed if line.startswith("a slice")]
    assert told == ["0-1", "2-12", "13"]


def test_a_stage_that_can_never_start_is_shown_with_the_reason() -> None:
    told = lines_of(
        seen(
            stage("work", ["completed"]),
            stage("alarm", ["stranded"], reason="not needed: `work` completed"),
            stage("late", ["stranded"]),
        )
    )
    assert told == {
        "work": "work: completed (1/1)",
        "alarm": "alarm: stranded (0/1): not needed: `work` completed",
        "late": "late: stranded (0/1)",
    }


def test_accounts_that_are_away_do_not_keep_a_run_from_ending(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)

    def end_all() -> None:
        end(paths, "a", [0])
        end(paths, "a", [1], "failed", reason="it broke")
        slurm.says("squeue", "")

    script.events = [end_all]
    assert watch(paths.run_dir, quiet=False)[1] == 1
    assert any("could not be queried: sacct" in line for line in lines(capsys))


def test_a_silent_squeue_ends_nothing(script: Script, slurm: FakeSlurm, paths: RunPaths) -> None:
    def fall_silent() -> None:
        slurm.says("squeue", "", exit_code=1)
        slurm.says("sacct", account_row("1_0", "FAILED") + account_row("1_1", "FAILED"))

    script.events = [fall_silent, nothing, lambda: slurm.says("squeue", "")]
    status, _ = watch(paths.run_dir, quiet=True)
    assert status is not None
    assert status.status == "failed"
    assert script.events == []


def test_watch_waits_for_records_and_accounting_that_come_late(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.says("squeue", queue_row("1_0", "COMPLETED") + queue_row("1_1", "COMPLETED"))
    num_looks = int(PATIENCE_S["slurm"] / INTERVAL_S["slurm"])
    script.events = [nothing] * (num_looks - 2) + [lambda: end(paths, "a", [0, 1])]
    assert watch(paths.run_dir, quiet=True)[1] == 0


def test_a_notebook_waits_while_the_scheduler_is_unreachable_for_a_moment(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    def fall_silent() -> None:
        slurm.says("squeue", "", exit_code=1)
        slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)

    script.events = [fall_silent, nothing, lambda: end(paths, "a", [0, 1])]
    assert Run(paths.run_dir).wait().status == "completed"
    assert script.events == []


def test_temporarily_unreadable_files_are_reported_and_watching_continues(
    script: Script, slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_path(paths.ledger_dir, 1)
    data = entry.read_bytes()
    script.events = [
        entry.unlink,
        nothing,
        lambda: write_bytes_atomic(entry, data),
        lambda: end(paths, "a", [0, 1]),
    ]
    assert watch(paths.run_dir, quiet=False)[1] == 0
    said = [line for line in lines(capsys) if "could not be queried" in line]
    assert len(said) == 1
    assert "the run's files: [Errno 2]" in said[0]


def test_files_that_stay_away_end_the_watching_after_a_while(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    num_looks = int(PATIENCE_S["slurm"] / INTERVAL_S["slurm"])
    script.events = [entry_path(paths.ledger_dir, 1).unlink, *[nothing] * (num_looks - 1)]
    with pytest.raises(FileNotFoundError):
        watch(paths.run_dir, quiet=True)
    assert script.events == []
    with pytest.raises(FileNotFoundError):  # who has seen nothing has nothing to show meanwhile
        watch(paths.run_dir, quiet=True)


def test_the_while_is_counted_from_when_squeue_answers_again(
    script: Script, slurm: FakeSlurm, paths: RunPaths
) -> None:
    num_looks = int(PATIENCE_S["slurm"] / INTERVAL_S["slurm"])
    script.events = [
        lambda: slurm.says("squeue", "", exit_code=1),
        *[nothing] * num_looks,
        lambda: slurm.says("squeue", ""),
        lambda: end(paths, "a", [0, 1]),
    ]
    assert watch(paths.run_dir, quiet=True)[1] == 0


def test_the_live_view_shows_the_end(
    script: Script, slurm: FakeSlurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30, color_system=None)
    monkeypatch.setattr("slurm_jobs.cli.terminal.console.page_console", lambda: console)
    script.events = [lambda: end(paths, "a", [0]), lambda: end(paths, "a", [1])]
    status, _ = watch(paths.run_dir, quiet=False)
    assert status is not None
    assert status.status == "completed"
    text = screen.getvalue()
    assert "0 R." in text
    assert "0 C." in text
    assert "completed  2/2" in text


@pytest.mark.parametrize(
    ("word", "knows_the_living", "at_once", "later"),
    [
        ("completed", False, True, True),
        ("failed", True, True, True),
        ("failed", False, False, False),
        ("cancelled", True, True, True),
        ("stranded", True, True, True),
        ("unknown", True, False, True),
        ("unknown", False, False, False),
    ],
)
def test_a_run_is_over_when_this_is_proven_and_not_before(
    word: Status, knows_the_living: bool, at_once: bool, later: bool
) -> None:
    status = seen(stage("a", [word]), status=word, knows_the_living=knows_the_living).status
    assert is_over(status, open_for_s=0.0, patience_s=60.0) is at_once
    assert is_over(status, open_for_s=60.0, patience_s=60.0) is later


def test_a_queued_job_keeps_a_run_from_being_over_however_long() -> None:
    status = seen(stage("a", ["failed", "waiting"]), status="failed").status
    assert not is_over(status, open_for_s=1e9, patience_s=60.0)


def test_stages_that_were_never_submitted_are_not_waited_for_for_ever() -> None:
    status = seen(stage("a", ["waiting"], job=None), status="waiting").status
    assert not is_over(status, open_for_s=0.0, patience_s=60.0)
    assert is_over(status, open_for_s=60.0, patience_s=60.0)
    text = "\n".join(end_lines(Path("/runs/r"), status))
    assert "no job of this run is queued or running" in text
    assert "resume" in text


def test_looks_are_further_apart_than_an_answer_is_kept() -> None:
    from slurm_jobs.run.kept_answers import FRESH_S

    assert INTERVAL_S["slurm"] > FRESH_S
