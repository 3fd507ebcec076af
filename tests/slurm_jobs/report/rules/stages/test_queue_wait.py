"""A run that spends most of its time in the queue."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.rules.stages.queue_wait import queue_dominates
from tests.slurm_jobs.report.builders import check, finding


def test_a_queue_that_takes_most_of_the_time_is_found(report_of):
    found = finding(report_of(train_queue_s=4000.0), "queue-wait", "")
    assert found.ceiling.startswith("no such waits: the run is at most ")
    assert check(report_of(with_accounting=False), "queue-wait", "").outcome == "abstained"


def test_a_queue_of_all_the_time_has_an_unknown_ceiling():
    queue = TimeShare(name="queue wait", kind="queue", seconds=3600, share=1.0)
    assert queue_dominates([queue], "").ceiling == "not known: nothing but waiting was recorded"


def test_the_queue_of_a_run_that_goes_on_is_not_judged(report_of):
    report = report_of()
    going = replace(report.stages[0], status="waiting")
    _, checks = find([going], [], report.timeline, "")
    assert {c.rule_id: c.outcome for c in checks}["queue-wait"] == "abstained"
