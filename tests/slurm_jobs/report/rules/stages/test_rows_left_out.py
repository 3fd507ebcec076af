"""Rows that did not become samples: which are a finding, and with which reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import known, missing
from slurm_jobs.report.rules.stages.rows_left_out import left_out, rejected
from tests.slurm_jobs.report.rules.stages.run_data import data

__all__ = ["data"]


@pytest.fixture
def judged(data):
    """The rule's answer on 10,000 rows of which so many were left out, by reason."""

    def judge(**reasons):
        num_out = known(sum(reasons.values()), "count")
        rejects = (*reasons.items(), ("truncated_image", 5000))
        return left_out(replace(data, num_too_long=num_out, rejects=rejects))

    return judge


def test_leaving_out_half_of_the_rows_by_choice_is_a_finding(judged):
    found = judged(too_long=5000)
    assert (found.severity, found.rule_id) == ("high", "left-out:preprocess")
    assert found.title == "50 % of the rows are over a limit and left out (preprocess)"
    assert found.evidence == ("5,000 of 10,000 rows: too_long 5,000",)
    assert "Raise max_tokens" in found.next_knob
    assert "truncate_text" in found.next_knob


def test_the_knob_is_the_limit_that_the_rows_are_over(judged):
    knob = judged(too_many_images=500).next_knob
    assert "max_images" in knob
    assert "max_tokens" not in knob
    assert "truncate_text" not in judged(images_too_long=500).next_knob


def test_few_rows_over_a_limit_are_no_finding_and_broken_ones_do_not_count(judged):
    assert judged(too_long=499).outcome == "clear"
    assert judged(too_long=500).severity == "medium"


def with_rejects(data, *rejects):
    return replace(data, num_rejects=known(sum(n for _, n in rejects), "count"), rejects=rejects)


@pytest.mark.parametrize(("num", "severity"), [(500, "medium"), (5000, "high")])
def test_rows_that_cannot_be_used_are_a_finding_with_their_reasons(data, num, severity):
    asked_for = (("too_long", 4000), ("partly_held_out", 500))
    reasons = (*asked_for, ("bad_row", num - 1), ("missing_image", 1))
    found = rejected(with_rejects(data, *reasons))
    assert (found.severity, found.rule_id) == (severity, "rejected:preprocess")
    assert found.evidence == (f"{num:,} of 10,000 rows: bad_row {num - 1:,}, missing_image 1",)


def test_few_rows_that_cannot_be_used_are_no_finding(data):
    assert rejected(with_rejects(data, ("bad_row", 499))).outcome == "clear"


def test_uncounted_rows_are_not_judged(data):
    found = left_out(replace(data, num_rows=missing("count", "no slice has completed")))
    assert (found.outcome, found.reason) == ("abstained", "no slice has completed")


def test_rows_left_out_come_before_the_speed_of_training(report_of):
    report = report_of(rejects={"too_long": 2400}, padding_share=0.1, stopped_at=None)
    assert report.checks[0].rule_id == report.findings[0].rule_id == "left-out:preprocess"
    assert "look first at finding 1: 24 % of the rows" in report.verdict
