"""Settings that differ, told so that those of the training are seen."""

from __future__ import annotations

from slurm_jobs.report.compare import ABSENT, differences, in_short
from tests.slurm_jobs.report.comparison.measured import measured


def arms(first: dict[str, str], second: dict[str, str]):
    return differences([measured("a", settings=first)], [measured("b", settings=second)])


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
    found = arms(first, dict.fromkeys(first, "2"))
    names = [one.name for one in found]
    assert names == ["num_ranks", "train.config.precision", "code", "stage a.config.x"]


def test_a_stage_of_one_arm_alone_is_one_line_and_one_of_both_keeps_its_settings() -> None:
    both = {"stage render.config.seed": "1"}
    told = short(
        {**both, "stage eval.config.x": "1", "stage eval.nsight": "false"},
        {"stage render.config.seed": "2", "train.config.y": "1"},
    )
    assert told == [
        ("train.config.y", (ABSENT,), ("1",)),
        ("stage render.config.seed", ("1",), ("2",)),
        ("stage eval", ("a stage of its own",), (ABSENT,)),
    ]


def test_a_setting_of_one_arm_alone_is_told_where_both_have_the_stage() -> None:
    both = {"stage render.config.seed": "1"}
    given = {**both, "stage render.config.max_reject_share": "0.05"}
    assert short(given, both) == [("stage render.config.max_reject_share", ("0.05",), (ABSENT,))]
