"""Advice on the memory and the time that a stage requests of Slurm, and when none is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import known
from slurm_jobs.report.rules.stages.array_imbalance import array_imbalance
from slurm_jobs.report.rules.stages.slurm_requests import time_request
from slurm_jobs.report.text.sentences import next_request
from tests.slurm_jobs.report.attempts.accounted import last_rows_only
from tests.slurm_jobs.report.builders import (
    check,
    finding,
    report_from,
    row_of,
    stage_of,
    with_rows,
    with_stage,
)


def test_a_task_of_several_slices_is_advised_by_the_slice(report_of):
    stage = stage_of(report_of(), "preprocess")
    packed = replace(
        stage,
        slices_per_task=10,
        longest_s=known(6000, "s"),  # 100 of 600 minutes: timeout_min 60 for each of ten
        time_limit_s=known(36_000, "s"),
    )
    found = time_request(packed)
    assert found.next_knob == "timeout_min: 12 (1.2 x the longest job, for each of 10 slices)"
    assert array_imbalance(packed).outcome == "abstained"


def test_the_time_limit_of_a_stage_that_is_not_completed_is_not_judged(report_of):
    stage = stage_of(report_of(), "preprocess")
    failed = replace(
        stage, status="failed", longest_s=known(400, "s"), time_limit_s=known(36_000, "s")
    )
    assert time_request(failed).outcome == "abstained"


GIB = 2**30


@pytest.fixture
def requested(inputs_of):
    """Report a training with so many tasks a node, and another row in the accounting."""
    inputs = inputs_of(stopped_at=None, num_steps=900)
    (train,) = (stage for stage in inputs.stages if stage.name == "train")

    def make(tasks_per_node, **row_changes):
        resources = {**train.resources, "tasks_per_node": tasks_per_node}
        changed = with_stage(inputs, "train", resources=resources)
        return report_from(with_rows(changed, "14", **row_changes))

    return make


@pytest.mark.parametrize(
    ("num_tasks", "row", "reason"),
    [
        pytest.param(
            4, {"requested_mem_bytes": 256 * GIB, "max_rss_bytes": 55 * GIB},
            "55.0 GiB by the largest task, so at most 220 GiB by 4 tasks",
            id="four tasks may use four times what one does",
        ),
        pytest.param(
            1, {"requested_mem_bytes": 8 * GIB, "max_rss_bytes": GIB, "state": "OUT_OF_MEMORY"},
            "ran out of memory", id="out of memory",
        ),
        pytest.param(
            1, {"requested_mem_bytes": 8 * GIB, "max_rss_bytes": GIB, "source": "local"},
            "local scheduler", id="the largest process of a local task is not all of them",
        ),
        pytest.param(
            1, {"requested_mem_bytes": None, "max_rss_bytes": GIB},
            "", id="all of a node",
        ),
    ],
)  # fmt: skip
def test_no_advice_on_memory_is_given_that_might_get_a_job_killed(
    requested, num_tasks, row, reason
):
    found = check(requested(num_tasks, **row), "memory-request")
    assert found.outcome == "abstained"
    assert found.reason
    assert reason in found.reason


def test_advice_for_several_tasks_assumes_that_each_needs_the_most(requested):
    report = requested(4, requested_mem_bytes=256 * GIB, max_rss_bytes=25 * GIB)
    found = finding(report, "memory-request")
    assert found.title.startswith("at most 39 % of the requested memory")
    assert found.next_knob.startswith("mem_gb: 120 ")
    assert "at most 100 GiB by 4 tasks, of 256 GiB requested per node" in found.evidence[0]


def test_memory_far_above_use_is_found_with_a_suggestion_of_a_fifth_more(requested):
    report = requested(1, requested_mem_bytes=8 * GIB, max_rss_bytes=2.1 * GIB)
    found = finding(report, "memory-request")
    assert found.next_knob.startswith("mem_gb: 3 ")
    assert "jobstats" in found.source


def test_memory_above_the_request_is_found_with_the_request_that_is_needed(requested):
    report = requested(1, requested_mem_bytes=GIB / 2, max_rss_bytes=3.78 * GIB)
    found = finding(report, "memory-exceeded")
    assert found.title == "a task used 3.78 GiB of memory, 512 MiB was requested (train)"
    assert found.evidence[0] == "1 of 1 start used more than requested"
    assert found.next_knob.startswith("mem_gb: 5 ")
    assert "OUT_OF_MEMORY" in found.text
    assert check(report, "memory-request").outcome == "clear"
    assert next_request(report, "train").startswith("mem_gb: 5")


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        pytest.param({"max_rss_bytes": GIB}, "clear", "", id="all of the request"),
        pytest.param({"max_rss_bytes": None}, "abstained", "MaxRSS", id="no sample"),
        pytest.param(
            {"requested_mem_bytes": None, "max_rss_bytes": GIB},
            "abstained",
            "mem_gb",
            id="no request",
        ),
        pytest.param(
            {"max_rss_bytes": 2 * GIB, "state": "OUT_OF_MEMORY"}, "clear", "killed", id="killed"
        ),
        pytest.param({"max_rss_bytes": 2 * GIB, "source": "local"}, "clear", "", id="local"),
    ],
)
def test_memory_within_the_request_or_not_known_is_no_excess(requested, row, outcome, reason):
    found = check(requested(1, **{"requested_mem_bytes": GIB, **row}), "memory-exceeded")
    assert found.outcome == outcome
    assert reason in found.reason


def test_an_excess_that_the_newest_request_covers_is_no_finding(inputs_of):
    inputs = inputs_of(stopped_at=None)
    row = row_of(inputs, "14")
    before = replace(
        row, requested_mem_bytes=GIB, max_rss_bytes=3 * GIB,
        start_unix_s=row.start_unix_s - 60, end_unix_s=row.start_unix_s - 30,
    )  # fmt: skip
    after = replace(row, requested_mem_bytes=4 * GIB, max_rss_bytes=3 * GIB)
    found = check(report_from(with_rows(inputs, "14", before, after)), "memory-exceeded")
    assert (found.outcome, "newest request is larger" in found.reason) == ("clear", True)


def test_a_short_job_that_used_too_much_memory_is_found(requested):
    start = 1_700_000_000.0
    report = requested(
        1, requested_mem_bytes=GIB, max_rss_bytes=2 * GIB, start_unix_s=start, end_unix_s=start + 9
    )
    assert finding(report, "memory-exceeded").next_knob.startswith("mem_gb: 3 ")


def test_short_jobs_are_not_judged_by_their_requests(report_of):
    found = check(report_of(used_mem_share=0.3), "memory-request", ":consolidate")
    assert found.outcome == "abstained"


def test_no_advice_to_ask_for_less_rests_on_a_lower_bound(inputs_of):
    asked = {"time_limit_s": 36_000, "requested_mem_bytes": 64e9}
    report = report_from(last_rows_only(inputs_of(num_steps=1500), **asked))
    assert stage_of(report).longest_s.at_least == "the accounting lacks 1 of 2 starts"
    for rule in ("time-request", "memory-request"):
        found = check(report, rule)
        assert (found.outcome, "lower bound" in found.reason) == ("abstained", True)
