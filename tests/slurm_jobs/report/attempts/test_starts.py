"""Starts of jobs and how long each lasted, also where the accounting lacks an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.slurm_jobs.report.attempts.accounted import inputs, numbers_of, requeued
from tests.slurm_jobs.report.builders import (
    NOT_STARTED,
    check,
    notes_with,
    report_from,
    row_of,
    stage_of,
    with_rows,
    with_stage,
)

__all__ = ["inputs", "requeued"]


def test_a_job_cancelled_in_the_queue_is_no_start(inputs):
    without = with_stage(inputs, "train", **NOT_STARTED)
    end = row_of(inputs, "14").end_unix_s
    train = numbers_of(with_rows(without, "14", state="CANCELLED", start_unix_s=end))
    assert (train.num_attempts, train.failures, train.running_s.value) == (0, (), None)


def unended(inputs, *, state="RUNNING"):
    """The training's second start has no end in the accounting, and left no completion."""
    first, last = (row for row in inputs.accounting if row.job_id == "14")
    last = replace(last, end_unix_s=None, state=state, max_rss_bytes=None, cpu_time_s=None)
    train = next(s for s in inputs.stages if s.name == "train")
    changed = with_rows(inputs, "14", first, last)
    return with_stage(changed, "train", completions=train.completions[:-1])


def test_a_start_that_runs_counts_up_to_when_the_records_were_read(requeued):
    stopped, last = (row for row in requeued.accounting if row.job_id == "14")
    now = last.start_unix_s + 7200
    report = report_from(replace(unended(requeued), read_unix_s=now))
    train = stage_of(report)
    assert train.status == "running"
    stopped_s = stopped.end_unix_s - stopped.start_unix_s
    assert train.gpu_hours.value == pytest.approx(2 * (7200 + stopped_s) / 3600)
    assert train.longest_s.value == pytest.approx(7200)
    assert (train.gpu_hours.at_least, train.longest_s.at_least) == ("", "")
    assert train.max_rss_bytes.at_least == "1 of 2 starts have not ended in the accounting"
    assert notes_with(report, "train: memory is a lower bound, ")
    assert check(report, "time-request").reason == "the stage is not completed"


def test_a_start_without_a_recorded_end_counts_to_its_last_sign_of_life(requeued):
    ended = numbers_of(requeued)
    train = numbers_of(replace(unended(requeued, state="NODE_FAIL"), read_unix_s=2e9))
    for number, most in ((train.gpu_hours, ended.gpu_hours), (train.longest_s, ended.longest_s)):
        assert number.at_least == "the accounting lacks the end of 1 of 2 starts"
        assert 0.9 * most.value < number.value <= most.value


def test_no_hours_are_guessed_for_a_start_without_record_and_end(requeued):
    lost = with_stage(unended(requeued, state="NODE_FAIL"), "train", **NOT_STARTED)
    train = numbers_of(replace(lost, read_unix_s=2e9))
    assert train.longest_s.at_least == "the accounting lacks the end of 1 of 2 starts"
    assert train.longest_s.value < 3600
