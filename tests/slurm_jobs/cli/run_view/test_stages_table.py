"""Stages of a run in the live view: ages, expected starts, reasons and progress."""

import dataclasses

from slurm_jobs.cli.run_view.problems import Failure
from tests.slurm_jobs.cli.run_view.shown_view import shown
from tests.slurm_jobs.cli.statuses import NOW_S, seen, stage


def test_age_source_and_expected_start_are_shown() -> None:
    view = seen(
        stage("train", ["waiting"], reason="Priority", start_unix_s=NOW_S + 7500),
        status="waiting",
    )
    text = " ".join(" ".join(shown(view, 160)).split())
    assert "(checked 4 s ago)" in text
    assert "squeue, 4 s ago" in text
    assert "Priority; expected to start" in text
    assert "(in 2 h 05 min)" in text


def test_an_expected_start_that_has_passed_is_not_shown() -> None:
    view = seen(stage("train", ["waiting"], reason="Priority", start_unix_s=NOW_S - 1))
    assert "expected" not in " ".join(shown(view, 160))


def test_progress_of_a_running_task_is_shown() -> None:
    view = seen(stage("train", ["running"]), progress={"train": "120/500 steps loss 0.3"})
    assert "120/500 steps loss 0.3" in " ".join(shown(view))


def test_a_reason_longer_than_a_line_is_wrapped_and_not_cut() -> None:
    reason = "rank 3 on gpu17: RuntimeError: " + " ".join(f"word{n}" for n in range(12))
    view = seen(stage("a", ["failed"]), status="failed", failure=Failure(line=reason))
    assert reason in " ".join(line.strip() for line in shown(view, 60))


def test_a_running_task_has_a_bar_that_needs_no_colour() -> None:
    found = seen(
        stage("train", ["running"]),
        progress={"train": "250/1000 steps loss 0.5000, 12,000 tokens/s, 3 % waiting for data"},
    )
    found = dataclasses.replace(found, shares={"train": 0.25})
    assert f"train [{'#' * 10}{'.' * 30}]  25 %" in shown(found)
    assert "tokens/s, 3 % waiting for data" in "\n".join(shown(found, 200))
    assert not any("#" in line for line in shown(found, 20))


def test_bars_leave_room_on_a_small_screen() -> None:
    stages = [stage(f"s{number}", ["running"]) for number in range(8)]
    found = dataclasses.replace(seen(*stages), shares={each.stage.name: 0.5 for each in stages})
    assert len(shown(found, 100, 14)) < 14
