"""Settings that differ, listed so that those of the training are seen."""

from __future__ import annotations

from slurm_jobs.report.comparison.run_measures import measure
from slurm_jobs.report.comparison.run_settings import ABSENT, differences, in_short
from tests.slurm_jobs.report.builders import edited
from tests.slurm_jobs.report.comparison.measured import measured
from tests.slurm_jobs.report.comparison.measured_folder import paths

__all__ = ["paths"]


def short(first: dict[str, str], second: dict[str, str]):
    pair = ([measured("a", settings=first)], [measured("b", settings=second)])
    return [(one.name, one.first, one.second) for one in in_short(differences(*pair), *pair)]


def test_those_of_the_training_come_first_and_those_of_other_stages_last() -> None:
    first = {
        "stage a.config.x": "1",
        "code": "1",
        "train.config.precision": "fp16",
        "num_ranks": "1",
    }
    second = dict.fromkeys(first, "2")
    found = differences([measured("a", settings=first)], [measured("b", settings=second)])
    assert [one.name for one in found] == [
        "num_ranks",
        "train.config.precision",
        "code",
        "stage a.config.x",
    ]


def test_a_stage_of_only_one_arm_is_one_line() -> None:
    both = {"stage render.config.seed": "1"}
    told = short(
        {**both, "stage eval.config.x": "1", "stage eval.nsight": "false"},
        {"stage render.config.seed": "2", "train.config.y": "1"},
    )
    assert told == [
        ("train.config.y", (ABSENT,), ("1",)),
        ("stage render.config.seed", ("1",), ("2",)),
        ("stage eval", ("only here",), (ABSENT,)),
    ]


def test_a_setting_of_one_arm_is_listed_when_both_have_the_stage() -> None:
    both = {"stage render.config.seed": "1"}
    given = {**both, "stage render.config.max_reject_share": "0.05"}
    assert short(given, both) == [("stage render.config.max_reject_share", ("0.05",), (ABSENT,))]


def test_settings_of_phases_are_listed_one_by_one(paths):
    with edited(paths.resolved_spec) as spec:
        phases = [{"name": "a", "num_steps": 3, "schedule": None}]
        spec["stages"]["train"]["config"]["phases"] = phases
    settings = measure(paths.run_dir).settings
    assert settings["train.config.phases[0].num_steps"] == "3"
    assert "train.config.phases[0].schedule" not in settings


def test_what_holds_for_all_stages_is_a_setting_too(paths):
    with edited(paths.resolved_spec) as spec:
        spec["environment"] = {"NCCL_P2P_DISABLE": "1", "WANDB_API_KEY": "hunter22"}
        spec["limit"] = 500
    paths.spec_origin.write_text('{"profile": {"slurm": {"qos": "long"}}}')
    settings = measure(paths.run_dir).settings
    assert settings["run.environment.NCCL_P2P_DISABLE"] == "1"
    assert settings["run.limit"] == "500"
    assert settings["cluster.slurm.qos"] == "long"
    assert "hunter22" not in str(settings)
