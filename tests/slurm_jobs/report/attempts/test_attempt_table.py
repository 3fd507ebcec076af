"""The attempts of a run in its report: on the page, in the terminal and as JSON."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_jobs.report.attempts.attempt_table import (
    attempt_rows,
    ended_lines,
    others_text,
    reason_lines,
    shown_entries,
)
from tests.slurm_jobs.report.builders import printed


def attempts_of(report, stage: str):
    return next(attempts for attempts in report.attempts if attempts.stage == stage)


def test_a_report_has_the_attempts_that_need_an_explanation(report_of) -> None:
    report = report_of()
    assert [attempts.stage for attempts in report.attempts] == ["preprocess", "train"]
    train = attempts_of(report, "train").entries
    assert [(e.attempt, e.ending, e.state, e.num_steps) for e in train] == [
        (1, "preempted", "PREEMPTED", 170),
        (2, "completed", "COMPLETED", 250),
    ]
    assert train[0].repeated_s > 0
    assert train[1].startup_again_s > 0
    retried = attempts_of(report, "preprocess")
    assert {e.slice_index for e in retried.entries} == {1}  # of four
    assert retried.entries[0].ending == "out of memory"


def test_the_terminal_says_how_attempts_ended_and_what_that_cost(report_of) -> None:
    text = printed(report_of(), 250)
    assert "preempted, before it completed: train, slice 0, attempt 1, job 14: Slurm gave" in text
    assert re.search(r"it stopped in time \(170 steps, \d+\.\d s lost\)", text)


def test_a_table_of_many_attempts_shows_the_last_ones(report_of) -> None:
    train = attempts_of(report_of(), "train")
    many = replace(train, entries=tuple(replace(train.entries[0], attempt=n) for n in range(1, 51)))
    shown = shown_entries(many.entries)
    assert [entry.attempt for entry in shown] == list(range(31, 51))
    assert others_text(many, shown) == "and 30 earlier attempts"


def test_columns_without_a_value_are_left_out(report_of) -> None:
    entry = replace(
        attempts_of(report_of(), "train").entries[0],
        num_steps=None, repeated_s=None, startup_again_s=None, state="",
    )  # fmt: skip
    columns, (row,) = attempt_rows([entry], lambda _: "12:00", is_array=False)
    assert columns == ("attempt", "job", "node", "started", "ended", "ended by")
    assert row == ("1", "14", "gpu-01", "12:00", "12:00", "preempted")


def test_attempts_that_failed_for_one_reason_are_one_line(report_of) -> None:
    attempts = attempts_of(report_of(), "preprocess")
    broken = replace(attempts.entries[0], ending="failed", state="FAILED", num_steps=None)
    entries = [
        replace(
            broken,
            slice_index=index,
            reason=f"rank 0 on n{index}: ValueError: empty",
            failed_rank=0,
            failed_node=f"n{index}",
        )
        for index in (1, 2)
    ]
    entries.append(replace(broken, slice_index=3, reason="no space left"))
    empty = "preprocess, slices 1-2: rank 0 on n1, n2: ValueError: empty"
    other = "preprocess, slice 3, attempt 1, job 12_1: no space left"
    attempts = replace(attempts, entries=tuple(entries))
    assert ended_lines(attempts, is_complete=False, most=2) == [
        f"failed: {empty}",
        f"failed: {other}",
    ]
    assert ended_lines(attempts, is_complete=False, most=1) == [
        f"failed: {empty}",
        "... and 1 more ended attempts of preprocess; `report --json` has all",
    ]
    assert reason_lines(entries, is_array=True) == [
        "slices 1-2: rank 0 on n1, n2: ValueError: empty",
        "slice 3, attempt 1: no space left",
    ]
    retried = [replace(entries[2], attempt=number) for number in (1, 2)]
    assert reason_lines(retried, is_array=False) == ["attempts 1-2: no space left"]
