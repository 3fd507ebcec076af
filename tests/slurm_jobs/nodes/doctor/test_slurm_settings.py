"""What Slurm's settings are taken to mean."""

from __future__ import annotations

import pytest

from slurm_jobs.nodes.doctor.site_facts import ProgramAnswer
from slurm_jobs.nodes.doctor.slurm_settings import slurm_checks
from tests.slurm_jobs.nodes.made_facts import CONFIG, named, slurm, spec


def test_a_site_where_all_is_well_has_nothing_but_ok() -> None:
    checks = slurm_checks(slurm(), spec())
    assert {check.standing for check in checks} == {"ok"}
    assert named(checks, "slurm-version").told == "Slurm 22.05.8"


def test_a_silent_controller_is_a_problem_and_nothing_is_concluded_from_it() -> None:
    facts = slurm(settings=ProgramAnswer(problem="scontrol: no answer in 15 s"))
    checks = slurm_checks(facts, spec())
    assert named(checks, "controller").standing == "problem"
    assert "no answer in 15 s" in named(checks, "controller").told
    assert {check.name for check in checks} == {"commands", "slurm-version", "controller"}


def test_settings_missing_from_slurm_are_never_ok() -> None:
    checks = slurm_checks(slurm("ClusterName = c\n"), spec())
    for name in ("requeue", "arrays", "stop-signal", "preemption", "controller-clock"):
        assert named(checks, name).standing == "unknown"


@pytest.mark.parametrize(
    ("line", "name", "standing", "said"),
    [
        ("AccountingStorageType=(null)", "accounting", "warning", "off"),
        ("JobRequeue=0", "requeue", "ok", "ours ask"),
        ("AuthInfo=cred_expire=900", "requeue-wait", "warning", "900 s"),
        ("AuthInfo=socket=/s,cred_expire=5", "requeue-wait", "ok", "waits 5 s"),
        ("MaxArraySize=0", "arrays", "warning", "switched off"),
        ("DependencyParameters=kill_invalid_depend", "dependencies", "ok", "are cancelled"),
    ],
)
def test_a_setting_is_reported_with_its_meaning(
    line: str, name: str, standing: str, said: str
) -> None:
    key = line.partition("=")[0]
    kept = [each for each in CONFIG.splitlines() if not each.startswith(key)]
    check = named(slurm_checks(slurm("\n".join([*kept, line])), spec()), name)
    assert (check.standing, said in check.told) == (standing, True), check
    assert check.remedy or standing == "ok"


def test_a_user_without_an_account_is_a_problem_if_accounts_are_enforced() -> None:
    config = CONFIG.replace("Enforce = none", "Enforce = associations,limits")
    checks = slurm_checks(slurm(config, association=ProgramAnswer(text="")), spec())
    assert named(checks, "account").standing == "problem"
    assert "lab" in named(slurm_checks(slurm(config), spec()), "account").told


def test_a_partition_that_is_not_there_or_has_no_node_up_is_a_problem() -> None:
    absent = named(slurm_checks(slurm(), spec(partitions=("gpu",))), "partitions")
    assert (absent.standing, "gpu" in absent.told, "cpu, high" in absent.remedy) == (
        "problem",
        True,
        True,
    )
    down = ProgramAnswer(text="cpu|up|2|down*|cpu*\nhigh|up|2|idle|high\n")
    dead = named(slurm_checks(slurm(nodes=down), spec()), "partitions")
    assert (dead.standing, dead.remedy) == ("problem", "sinfo -R -p cpu")


def test_a_squeue_that_ignores_the_format_is_a_problem() -> None:
    foreign = ProgramAnswer(text="JOBID PARTITION NAME USER ST\n7 debug words ada R\n")
    (check,) = (c for c in slurm_checks(slurm(queue=foreign), spec()) if c.name == "squeue")
    assert check.standing == "problem"
    assert "did not print the 9 fields" in check.told
