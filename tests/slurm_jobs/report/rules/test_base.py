"""A ceiling is that of the slowest rank, and every answer has its threshold and source."""

from __future__ import annotations

from tests.slurm_jobs.report.builders import finding

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_a_ceiling_is_that_of_the_rank_that_waits_longest(report_of):
    """Removing all data wait leaves the rest of the slowest rank's step, and no rank less."""
    report = report_of(
        **SOUND | {"num_ranks": 2, "data_wait_s": 0.0}, slow_rank_extra_s=0.5, num_steps=200
    )
    slow = report.training[0].ranks[1]
    truth = slow.step_mean_s / (slow.step_mean_s - slow.phases_s["data_wait"])
    ceiling = finding(report, "data-wait").ceiling
    assert truth <= float(ceiling.split("at most ")[1].split()[0]) <= truth + 0.011
    assert truth > 1.9


def test_every_rule_names_its_threshold_and_source_whatever_it_answered(report_of):
    for report in (report_of(), report_of(data_wait_s=0.6, with_accounting=False)):
        assert {found.outcome for found in report.checks} >= {"clear", "abstained"}
        for found in report.checks:
            assert found.rule, found.rule_id
            assert found.source, found.rule_id
