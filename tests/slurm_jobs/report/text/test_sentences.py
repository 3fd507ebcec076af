"""Judgements in words: requests of the next run, and rules that could not judge."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import known
from slurm_jobs.report.rules.stages.slurm_requests import memory_request, time_request
from slurm_jobs.report.text.sentences import next_request, no_finding
from slurm_jobs.report.values.finding_model import RuleOutcome
from tests.slurm_jobs.report.builders import stage_of

NOTHING = "No rule found anything to change"


@pytest.mark.parametrize(
    ("rule", "outcomes", "text"),
    [
        ("padding", ["clear"], rf"{NOTHING}\."),
        (
            "padding",
            ["clear", "abstained", "abstained"],
            rf"{NOTHING}, but 2 of 3 rules could not judge\.",
        ),
        # An exchange that nobody saw is told with what would show it.
        ("exposed-communication", ["abstained"], ".*`slurm-jobs tune` records one."),
        ("exposed-communication", ["clear"], rf"{NOTHING}\."),
    ],
)
def test_without_findings_the_rules_that_could_not_judge_are_listed(rule, outcomes, text):
    checks = [RuleOutcome(rule_id=f"{rule}:train", outcome=o, reason="") for o in outcomes]
    assert re.fullmatch(text, no_finding(checks), re.DOTALL)


@pytest.mark.parametrize(
    ("memory_gib", "hours", "changes", "text"),
    [
        pytest.param(2, 1, {}, "mem_gb: 3; timeout_min: 72", id="both"),
        pytest.param(9, 9, {}, "as asked", id="none"),
        pytest.param(9, 1, {}, "timeout_min: 72", id="time"),
        pytest.param(9, 9, {"status": "failed"}, "as asked; time not judged", id="failed"),
        pytest.param(9, 0.01, {}, "not judged", id="short"),
    ],
)
def test_the_next_request_is_what_the_findings_suggest(report_of, memory_gib, hours, changes, text):
    """Of a stage that used so much of 10 GiB and of 10 h."""
    stage = replace(
        stage_of(report_of(), "consolidate"),
        node_mem_bytes=known(memory_gib * 2**30, "bytes"),
        requested_mem_bytes=known(10 * 2**30, "bytes"),
        longest_s=known(hours * 3600, "s"),
        time_limit_s=known(10 * 3600, "s"),
        **changes,
    )
    answers = [memory_request(stage), time_request(stage)]
    checks = tuple(answer for answer in answers if isinstance(answer, RuleOutcome))
    findings = tuple(answer for answer in answers if not isinstance(answer, RuleOutcome))
    report = replace(report_of(), findings=findings, checks=checks)
    assert next_request(report, "consolidate") == text
