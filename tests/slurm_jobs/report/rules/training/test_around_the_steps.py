"""Time outside the training steps is a finding in a long training only."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.report.rules.training.around_the_steps import around_steps


def test_a_start_up_of_a_quarter_of_the_attempts_is_a_finding(report_of):
    numbers = report_of(num_steps=60, stopped_at=None).training[0]
    assert around_steps(numbers).outcome == "abstained"  # under two minutes deserve no advice
    longer = tuple(replace(s, seconds=10 * s.seconds) for s in numbers.budget)
    found = around_steps(replace(numbers, budget=longer))
    assert found.evidence[0].startswith("stage in: 2 min 20 s")
