"""Whether rows that were left out, and fail nothing, are told."""

from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.rules.stage_rules import left_out, rejected, slow_tokenising
from slurm_jobs.shared.units import known, missing


@pytest.fixture
def judged(report_of):
    """The rule's answer on 10,000 rows of which so many were left out, by reason."""
    data = report_of(num_steps=1, stopped_at=None).data[0]

    def judge(**reasons):
        num_out = known(sum(reasons.values()), "count")
        rejects = (*reasons.items(), ("truncated_image", 5000))
        return left_out(dataclasses.replace(data, num_too_long=num_out, rejects=rejects))

    return judge


def test_half_of_the_rows_left_out_by_choice_is_a_finding_with_reasons_and_knob(judged):
    finding = judged(too_long=5000)
    assert (finding.severity, finding.rule_id) == ("high", "left-out:preprocess")
    assert finding.title == "50 % of the rows are left out over a limit (preprocess)"
    assert finding.evidence == ("5,000 of 10,000 rows: too_long 5,000",)
    assert "raise max_tokens" in finding.next_knob
    assert "truncate_text" in finding.next_knob


def test_the_knob_is_the_limit_that_the_rows_are_over(judged):
    knob = judged(too_many_images=500).next_knob
    assert "max_images" in knob
    assert "max_tokens" not in knob
    assert "truncate_text" not in judged(images_too_long=500).next_knob


def test_few_rows_over_a_limit_are_no_finding_and_broken_ones_do_not_count(judged):
    assert judged(too_long=499).outcome == "clear"
    assert judged(too_long=500).severity == "medium"


@pytest.mark.parametrize(("num", "severity"), [(500, "medium"), (5000, "high")])
def test_rows_that_cannot_be_used_are_a_finding_with_their_reasons(report_of, num, severity):
    data = report_of(num_steps=1, stopped_at=None).data[0]
    rejects = (("too_long", 4000), ("bad_row", num - 1), ("missing_image", 1))
    total = known(sum(count for _, count in rejects), "count")
    finding = rejected(dataclasses.replace(data, num_rejects=total, rejects=rejects))
    assert (finding.severity, finding.rule_id) == (severity, "rejected:preprocess")
    assert finding.evidence == (f"{num:,} of 10,000 rows: bad_row {num - 1:,}, missing_image 1",)


def test_few_rows_that_cannot_be_used_are_no_finding(report_of):
    data = report_of(num_steps=1, stopped_at=None).data[0]
    few = dataclasses.replace(data, num_rejects=known(499, "count"), rejects=(("bad_row", 499),))
    assert rejected(few).outcome == "clear"


def test_rows_that_nobody_counted_are_not_judged(report_of):
    data = report_of(num_steps=1, stopped_at=None).data[0]
    unknown = dataclasses.replace(data, num_rows=missing("count", "no slice has completed"))
    check = left_out(unknown)
    assert (check.outcome, check.reason) == ("abstained", "no slice has completed")


def test_rows_left_out_are_looked_at_before_the_speed_of_training(report_of):
    report = report_of(rejects={"too_long": 2400}, padding_share=0.1, stopped_at=None)
    assert report.checks[0].rule_id == "left-out:preprocess"
    assert report.findings[0].rule_id == "left-out:preprocess"
    assert "look first at finding 1: 24 % of the rows" in report.verdict


@pytest.mark.parametrize(
    ("work_s", "outcome"),
    [
        ({"decode": 40.0, "tokenise": 90.0, "write": 5.0}, "found"),
        ({"decode": 90.0, "tokenise": 40.0}, "clear"),
        ({"decode": 1.0, "tokenise": 9.0}, "clear"),  # seconds deserve no advice
        ({}, "abstained"),
    ],
)
def test_tokenising_is_found_where_it_is_most_of_the_work(report_of, work_s, outcome):
    data = report_of(num_steps=1, stopped_at=None).data[0]
    found = slow_tokenising(dataclasses.replace(data, work_s=work_s))
    assert getattr(found, "outcome", "found") == outcome
    if outcome == "found":
        assert found.evidence == ("decode 40.0 s, tokenise 90.0 s, write 5.00 s",)
        assert found.ceiling.startswith("no tokenising, in the time of the slices: at most 3.00")
