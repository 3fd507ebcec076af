"""Tasks, waits, times and use of resources of each stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.attempts.accounted import inputs, last_rows_only, requeued
from tests.slurm_jobs.report.builders import (
    notes_with,
    printed,
    report_from,
    report_on,
    seconds_of,
    stage_of,
    with_rows,
    with_stage,
)
from tests.slurm_jobs.report.numbers.resumed_run import removed

__all__ = ["inputs", "removed", "requeued"]


def test_a_stage_ran_for_as_long_as_one_of_its_attempts_did(report_of):
    report = report_of()
    first, second = (bar for bar in report.bars if bar.stage == "train")
    assert second.start_unix_s - first.end_unix_s > 60  # it waited for its requeue
    worked_s = sum(bar.end_unix_s - bar.start_unix_s for bar in (first, second))
    assert stage_of(report).running_s.value == pytest.approx(worked_s)
    slices = [bar for bar in report.bars if bar.stage == "preprocess"]  # side by side
    span_s = max(b.end_unix_s for b in slices) - min(b.start_unix_s for b in slices)
    assert stage_of(report, "preprocess").running_s.value == pytest.approx(span_s)


def test_waits_and_task_times_are_those_of_the_records(report_of):
    preprocess, train = (stage_of(report_of(), name) for name in ("preprocess", "train"))
    assert preprocess.dependency_wait_median_s.value == pytest.approx(1.0)
    assert preprocess.queue_wait_max_s.value == pytest.approx(37.0)
    assert preprocess.task_time.min_s == pytest.approx(380.0)
    assert preprocess.task_time.max_s == pytest.approx(410.0)
    assert preprocess.task_time.slowest.startswith("slice 3 ")
    assert preprocess.cpu_efficiency.value == pytest.approx(0.62)
    assert preprocess.max_running == 4
    # The two rows of a requeued job belong to its two attempts.
    assert train.queue_wait_max_s.value == pytest.approx(240.0)
    assert train.queue_wait_median_s.value == pytest.approx((240 + 68) / 2)


def test_the_time_of_a_removed_stage_counts_but_it_decides_nothing(removed, report_of):
    report = report_on(*removed)
    before, after = seconds_of(report_of().timeline), seconds_of(report.timeline)
    for name in ("preprocess running", "queue wait", "job start, end, pauses", "unexplained"):
        assert after.get(name) == before.get(name)
    stage = stage_of(report, "preprocess")
    assert (stage.is_former, stage.num_tasks, stage.num_attempts) == (True, 4, 5)
    assert stage.cpu_hours.value > 1.0
    assert (stage.status, report.header.status) == ("failed", "completed")
    assert report.data == ()
    assert not any(":preprocess" in check.rule_id for check in report.checks)


def test_a_removed_stage_is_reported_as_not_in_the_spec_in_every_form(removed):
    report = report_on(*removed)
    label = "preprocess (former)"
    assert label in render_html(report)
    assert label in printed(report, 160)
    assert report_to_json(report)["stages"][1]["is_former"]
    assert notes_with(report, f"{label} is no longer in the spec")
    for width in range(70, 100, 3):
        assert "…" not in printed(report, width)  # the longer name cuts no number off


def test_hours_of_a_task_whose_earlier_start_has_no_row_are_lower_bounds(requeued):
    report = report_from(last_rows_only(requeued, source="local"))
    train = stage_of(report)
    reason = "the accounting lacks 1 of 2 starts (the local scheduler keeps only a task's last)"
    for number in (train.cpu_hours, train.gpu_hours, train.longest_s, train.queue_wait_max_s):
        assert number.value > 0
        assert number.at_least == reason
    assert train.max_rss_bytes.at_least == reason
    (note,) = notes_with(report, "train: hours, longest job, ")
    assert note.endswith(reason)
    assert note in printed(report, 250)
    assert units.quantity(train.cpu_hours) in render_html(report)
    assert units.quantity(train.cpu_hours).startswith("at least ")
    written = next(s for s in report_to_json(report)["stages"] if s["name"] == "train")
    assert written["gpu_hours"]["at_least"] == reason
    assert stage_of(report, "consolidate").cpu_hours.at_least == ""


def test_with_a_row_for_every_start_nothing_is_a_lower_bound(inputs):
    report = report_from(inputs)
    train = stage_of(report)
    assert (train.cpu_hours.at_least, train.max_rss_bytes.at_least) == ("", "")
    assert not notes_with(report, "lower bound")


@pytest.mark.parametrize(
    ("tasks_per_node", "sampled", "shown"),
    [
        (1, 23.3 * 2**20, "at least 320 of 320 MiB, killed"),
        (1, None, "at least 320 of 320 MiB, killed"),
        (1, 350 * 2**20, "at least 350 of 320 MiB, killed"),
        (2, 23.3 * 2**20, "at least 160 of 320 MiB, killed"),
    ],
)
def test_a_task_killed_for_its_memory_used_at_least_its_limit(
    inputs, tasks_per_node, sampled, shown
):
    (train,) = (stage for stage in inputs.stages if stage.name == "train")
    resources = {**train.resources, "tasks_per_node": tasks_per_node}
    row = {"state": "OUT_OF_MEMORY", "requested_mem_bytes": 320 * 2**20, "max_rss_bytes": sampled}
    report = report_from(with_rows(with_stage(inputs, "train", resources=resources), "14", **row))
    assert stage_of(report).max_rss_bytes.at_least == "it was killed at its memory limit"
    assert shown in printed(report, 250)
    assert shown in render_html(report)


def test_a_larger_task_than_the_killed_one_is_shown_as_measured(inputs):
    first, *_ = (row for row in inputs.accounting if row.job_id == "14")
    killed = replace(first, state="OUT_OF_MEMORY", requested_mem_bytes=2.0**20, max_rss_bytes=None)
    whole = replace(first, max_rss_bytes=2.0**30)
    report = report_from(with_rows(inputs, "14", killed, whole))
    assert units.quantity(stage_of(report).max_rss_bytes) == "1.00 GiB"
    assert not stage_of(report).is_largest_killed
