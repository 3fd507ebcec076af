"""The next request of a stage, from what the rules on memory and time answered."""

import dataclasses

import pytest

from slurm_jobs.report.report_model import Check
from slurm_jobs.report.rules.stage_rules import memory_request, time_request
from slurm_jobs.report.sentences import next_request
from slurm_jobs.shared.units import known

GB = 2**30


@pytest.fixture
def asked(report_of):
    """Says the next request of a stage that used so much memory, and so much time, of 10."""

    def ask(memory, hours, **more):
        report = report_of()
        (stage,) = [s for s in report.stages if s.name == "consolidate"]
        stage = dataclasses.replace(
            stage,
            node_mem_bytes=known(memory * GB, "bytes"),
            requested_mem_bytes=known(10 * GB, "bytes"),
            longest_s=known(hours * 3600, "s"),
            time_limit_s=known(10 * 3600, "s"),
            **more,
        )
        answers = [memory_request(stage), time_request(stage)]
        checks = [answer for answer in answers if isinstance(answer, Check)]
        findings = [answer for answer in answers if not isinstance(answer, Check)]
        report = dataclasses.replace(report, findings=tuple(findings), checks=tuple(checks))
        return next_request(report, "consolidate")

    return ask


def test_the_next_request_is_what_the_findings_suggest(asked):
    assert asked(2, 1) == "mem_gb: 3; timeout_min: 72"


def test_requests_that_were_used_stay_as_asked(asked):
    assert asked(9, 9) == "as asked"
    assert asked(9, 1) == "timeout_min: 72"


def test_what_was_not_judged_is_no_reason_to_ask_for_the_same(asked):
    assert asked(9, 9, status="failed") == "as asked; time not judged"
    assert asked(9, 0.01) == "not judged"
