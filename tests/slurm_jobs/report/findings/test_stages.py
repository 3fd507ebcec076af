"""Advice on what to ask for, on memory above all: it must not get a job killed."""

from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig

GIB = 2**30


@pytest.fixture
def judged(fabrication, tmp_path):
    """Finding or check on the memory of `train`, whose tasks and rows are changed."""
    scenario = fabrication.Scenario(stopped_at=None, num_steps=900)
    paths, rows = fabrication.fabricate(tmp_path / "run", scenario)
    inputs = read_inputs(paths, rows)

    def judge(tasks_per_node, **row_changes):
        stages = tuple(
            dataclasses.replace(s, resources={**s.resources, "tasks_per_node": tasks_per_node})
            for s in inputs.stages
        )
        changed = tuple(
            dataclasses.replace(row, **row_changes) if row.job_id == "14" else row
            for row in inputs.accounting
        )
        report = build_report(
            dataclasses.replace(inputs, stages=stages, accounting=changed), ReportConfig()
        )
        rule_id = "memory-request:train"
        found = [f for f in report.findings if f.rule_id == rule_id]
        return (found or [c for c in report.checks if c.rule_id == rule_id])[0]

    return judge


def test_four_tasks_a_node_may_use_four_times_what_one_does_and_get_no_advice(judged):
    check = judged(4, requested_mem_bytes=256 * GIB, max_rss_bytes=55 * GIB)
    assert check.outcome == "abstained"
    assert "55.0 GiB by the largest task, so at most 220 GiB by 4 tasks" in check.reason


def test_advice_for_several_tasks_holds_if_each_takes_as_much_as_the_largest(judged):
    finding = judged(4, requested_mem_bytes=256 * GIB, max_rss_bytes=25 * GIB)
    assert finding.title.startswith("at most 39 % of the requested memory")
    assert finding.next_knob.startswith("mem_gb: 120 ")
    assert "at most 100 GiB by 4 tasks, of 256 GiB asked for a node" in finding.evidence[0]


def test_memory_far_above_use_of_one_task_is_found_with_a_suggestion_of_a_fifth_more(judged):
    finding = judged(1, requested_mem_bytes=8 * GIB, max_rss_bytes=2.1 * GIB)
    assert finding.next_knob.startswith("mem_gb: 3 ")
    assert "jobstats" in finding.source


def test_a_start_that_ran_out_of_memory_is_told_to_ask_for_no_less(judged):
    check = judged(1, requested_mem_bytes=8 * GIB, max_rss_bytes=GIB, state="OUT_OF_MEMORY")
    assert (check.outcome, "ran out of memory" in check.reason) == ("abstained", True)


def test_the_largest_process_of_a_local_task_is_not_taken_for_all_of_them(judged):
    check = judged(1, requested_mem_bytes=8 * GIB, max_rss_bytes=GIB, source="local")
    assert (check.outcome, "local scheduler" in check.reason) == ("abstained", True)


def test_a_request_for_all_of_a_node_is_not_judged_and_the_reason_is_said(judged):
    check = judged(1, requested_mem_bytes=None, max_rss_bytes=GIB)
    assert check.outcome == "abstained"
    assert check.reason


def test_short_jobs_are_not_judged_by_their_requests(report_of):
    report = report_of(used_mem_share=0.3)
    check = next(c for c in report.checks if c.rule_id == "memory-request:consolidate")
    assert check.outcome == "abstained"
