"""Preemption of jobs, by the settings of partitions."""

from __future__ import annotations

from slurm_jobs.nodes.doctor.site_facts import ProgramAnswer
from slurm_jobs.nodes.doctor.slurm_settings import slurm_checks
from tests.slurm_jobs.nodes.made_facts import CONFIG, named, slurm, spec


def test_without_grace_time_the_setting_that_loses_less_is_named() -> None:
    config = CONFIG.replace("preempt/none", "preempt/partition_prio")
    check = named(slurm_checks(slurm(config), spec()), "preemption")
    assert check.standing == "warning"
    assert "up to 30 min of training are lost" in check.told
    assert check.remedy == "stages.train.config.checkpoint.every_min: 10"
    graceful = ProgramAnswer(
        text=slurm().answers["partitions"].text.replace("GraceTime=0", "GraceTime=90")
    )
    assert (
        named(slurm_checks(slurm(config, partitions=graceful), spec()), "preemption").standing
        == "ok"
    )
    high = named(slurm_checks(slurm(config), spec(partitions=("high",))), "preemption")
    assert (high.standing, high.told) == ("ok", "no partition has priority over high")


def test_preemption_by_qos_is_unknown_from_the_partitions() -> None:
    config = CONFIG.replace("preempt/none", "preempt/qos")
    check = named(slurm_checks(slurm(config), spec()), "preemption")
    assert (check.standing, "gracetime" in check.remedy) == ("unknown", True)
