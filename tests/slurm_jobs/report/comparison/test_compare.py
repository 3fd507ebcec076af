"""Two arms: what is claimed, what it costs to claim more, and what weakens it."""

from __future__ import annotations

import pytest

from slurm_jobs.base import units
from slurm_jobs.report.comparison.communication_text import communication_lines
from slurm_jobs.report.comparison.compare import compare
from slurm_jobs.report.comparison.comparison_words import headline
from slurm_jobs.report.comparison.run_settings import ABSENT, differences, in_short
from slurm_jobs.report.comparison.scaling_base import HELD_SHARE, problems
from slurm_jobs.report.values.training_model import ExposedCommunication
from tests.slurm_jobs.report.comparison.measured import measured


def arm(name, *speeds, **values):
    return [measured(f"{name}{i}", tokens_per_s=s, **values) for i, s in enumerate(speeds)]


def test_several_runs_an_arm_allow_a_claim():
    found = compare(arm("a", 1000, 1010, 995), arm("b", 1100, 1105, 1095))
    assert headline(found).startswith("B is faster than A: B / A 1.09")
    assert found.samples is not None
    assert found.samples.word == "faster"
    assert found.warnings == ()


def test_a_cannot_tell_verdict_names_the_number_of_runs_and_hours_needed():
    found = compare(arm("a", 1000, 1040), arm("b", 1020, 1065))
    more = found.tokens.more_runs
    assert found.cost_rank_hours == pytest.approx(more * 4.0)
    hours = f"about {more * 4:,.0f}" if more * 4 >= 100 else "about "
    assert f"{more} more runs of each would suffice" in headline(found)
    assert hours in headline(found)
    assert headline(found).endswith("GPU-hours.")


def test_one_run_an_arm_says_nothing_of_the_next():
    found = compare(arm("a", 1000), arm("b", 1100))
    assert headline(found).startswith("Different in these two runs: B / A 1.100")
    assert "Single runs cannot show" in headline(found)
    assert found.samples is None


def test_one_run_against_several_gives_no_verdict():
    found = compare(arm("a", 1000), arm("b", 1100, 1101))
    assert headline(found) == (
        "No verdict: one arm has a single run; 2 of each are needed for a claim."
    )


def test_runs_too_short_for_stretches_are_named():
    found = compare(arm("a", 1000), arm("b", 1100, token_stretches=(), num_steps=30))
    assert headline(found) == (
        "No verdict: too few steps after the warm-up: b0 has 30, and 200 are needed to estimate a "
        "run's noise; train for longer, or give 2 or more of each (A1,A2 B1,B2), for which 20 "
        "steps each are enough."
    )


def test_two_steps_a_run_allow_no_claim_however_many_runs():
    found = compare(arm("a", 1000, 1001), arm("b", 1100, 1101, num_steps=2))
    assert found.tokens is found.samples is None
    assert "b0 has 2, b1 has 2, and 20 are needed; train for longer" in headline(found)


HELD = "other processes kept requested cores busy"


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (0.02, 0.4, HELD),
        (0.3, 0.3, HELD),
        (0.02, 0.05, None),
        (None, 0.1, None),
        (0.9, None, "90 % in A and not read in B, on average"),
        (None, 0.4, "not read in A and 40 % in B, on average"),
    ],
)
def test_cores_that_others_held_are_a_warning_next_to_the_difference(first, second, told):
    warnings = compare(arm("a", 1000, share_held=first), arm("b", 800, share_held=second)).warnings
    if told:
        assert any(told in line for line in warnings)
    else:
        assert not any(HELD in line for line in warnings)


def test_all_runs_that_are_too_short_are_named():
    short = {"token_stretches": (), "num_steps": 30}
    found = compare(arm("a", 1000, **{**short, "num_steps": 150}), arm("b", 1100, **short))
    assert "a0 has 150, b0 has 30, and 200 are needed" in headline(found)


def test_a_very_wide_interval_is_printed_as_its_width():
    found = compare(arm("a", 1000, 4000), arm("b", 1100, 3900))
    assert headline(found).startswith("Cannot tell from so few runs: B / A 1.036 (95 % interval ")
    assert " (95 % interval wider than a factor of 80,000) in real tokens" in headline(found)
    assert headline(found).count("factor") == 1
    assert found.tokens.low < 0.05  # --json has the ends


def test_a_usable_interval_is_printed_with_its_ends():
    found = compare(arm("a", 1000, 1040), arm("b", 1020, 1065))
    assert headline(found).startswith("Cannot tell: B / A 1.022 (95 % interval 0.8")


def test_runs_that_counted_no_tokens_are_compared_by_samples_alone():
    runs = (
        arm(name, *speeds, samples_per_s=50.0) for name, speeds in (("a", (0, 0)), ("b", (0, 0)))
    )
    found = compare(*runs)
    assert found.tokens is None
    assert "not all runs counted tokens" in headline(found)


def test_differences_are_those_between_the_arms():
    first = arm("a", 1000, 1001, settings={"precision": "fp16", "seed": "1"})
    second = arm("b", 1000, 1001, settings={"precision": "bf16", "seed": "1", "compile": "true"})
    found = compare(first, second).differences
    assert [(d.name, d.first, d.second) for d in found] == [
        ("compile", ("-",), ("true",)),
        ("precision", ("fp16",), ("bf16",)),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": {"train.config.precision": "bf16"}}, "are not repeats of each other"),
        ({"tokens_per_sample": 40.0}, "the samples differ"),
        ({"samples_per_step": 32.0}, "the global batches differ"),
        ({"phase_shares": {"a": 0.4, "b": 0.6}}, "the phases of the training"),
        ({"num_ranks": 4}, "the numbers of ranks differ"),
        ({"cards": ("Tesla V100",)}, "not all runs had the same cards"),
        ({"cpus": ("an older one",)}, "not all runs had the same processors"),
        ({"device": "cpu"}, "different devices: cpu, cuda"),
        ({"notes": ("b1: 1 of 2 attempts left out",)}, "1 of 2 attempts left out"),
    ],
)
def test_what_weakens_the_claim_is_reported(changed, said):
    usual = {"cards": ("A100",), "cpus": ("a new one",)}
    second = [measured("b0", **usual), measured("b1", **{**usual, **changed})]
    found = compare(arm("a", 1000, 1001, **usual), second)
    assert any(said in line for line in found.warnings)


def test_another_node_or_seed_makes_no_repeat_worse():
    runs = [
        measured(f"b{i}", settings={"node.cpu": str(i), "train.config.seed": str(i)})
        for i in range(2)
    ]
    assert not compare(runs, arm("a", 1000, 1001)).warnings


def test_a_note_on_several_runs_is_reported_once_with_their_names():
    def noted(name: str, *notes: str):
        return measured(name, notes=tuple(f"{name}: {note}" for note in notes))

    first = [noted("a0", "x", "y"), noted("a1", "x", "y")]
    second = [noted("b0", "x"), noted("b1", "x", "z")]
    assert list(compare(first, second).warnings) == ["all 4 runs: x", "a0, a1: y", "b1: z"]


@pytest.mark.parametrize(
    ("share_held", "told"),
    [
        (0.42, ("other processes kept 42 % of its requested cores busy (r)",)),
        (None, ()),
        (0.0, ()),
        (HELD_SHARE - 0.01, ()),
    ],
)
def test_a_base_whose_cores_others_held_has_a_problem(share_held, told):
    assert problems([measured("r", share_held=share_held)], []) == told


# Settings that differ, told so that those of the training are seen.


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


# Whether communication was hidden, and whether that made a run any faster.


def exposed_arm(name, *speeds, exposed, communicating=0.25, **values):
    found = ExposedCommunication(
        rank=0, attempt=1, num_steps=8, share=exposed, communication_share=communicating
    )
    return arm(name, *speeds, exposed=found, **values)


def lines(first, second):
    return communication_lines(compare(first, second))


PLAIN = (1000, 1002)


@pytest.mark.parametrize(
    ("exposed", "speeds", "told"),
    [
        pytest.param(
            (0.2, 0.01), (1001, 1003),
            "less time is exposed communication in B: by that alone B / A would be 1.24, and it is "
            "1.00. More communication is hidden, yet B is not surely faster",
            id="a prefetch that overlaps and is no faster",
        ),
        pytest.param(
            (0.2, 0.01), (1200, 1203),
            "less time is exposed communication in B: by that alone B / A would be 1.24, and it is "
            "1.20",
            id="hidden communication that pays",
        ),
        pytest.param(
            (0.01, 0.2), (900, 903),
            "more time is exposed communication in B: by that alone B / A would be 0.81, and it is "
            "0.90",
            id="more exposed communication",
        ),
        pytest.param((0.2, 0.2), (1001, 1003), None, id="equal"),
        pytest.param((0.2, 0.19), (1001, 1003), None, id="alike"),
    ],
)  # fmt: skip
def test_predicted_and_measured_gain_of_hidden_communication_are_printed(exposed, speeds, told):
    first, second = exposed
    said = lines(exposed_arm("a", *PLAIN, exposed=first), exposed_arm("b", *speeds, exposed=second))
    for name, share, line in zip("AB", exposed, said, strict=False):
        assert line == f"{name}: 25 % of 16 steps, {units.percent(share)} exposed"
    if told is None:
        assert len(said) == 2
    elif told.endswith("faster"):
        assert said[2].startswith(told)
    else:
        assert said[2] == told


def test_a_step_that_communicates_less_hides_nothing_by_that():
    first = exposed_arm("a", 1000, 1002, exposed=0.2, communicating=0.5)
    second = exposed_arm("b", 1001, 1003, exposed=0.05, communicating=0.05)
    assert "There is less communication, yet B is not surely faster" in lines(first, second)[2]


@pytest.mark.parametrize("other", [{"num_ranks": 4}, {"samples_per_step": 128.0}])
def test_nothing_is_promised_where_steps_do_other_work(other):
    first = exposed_arm("a", 1000, 1002, exposed=0.2)
    second = exposed_arm("b", 1900, 1903, exposed=0.01, **other)
    assert len(lines(first, second)) == 2


def test_an_arm_without_profiled_steps_says_how_to_have_some():
    said = lines(exposed_arm("a", 1000, 1002, exposed=0.2), arm("b", 1001, 1003))
    assert said[1] == "B: no steps were profiled (`profile: {steps: [20, 40]}`)"
    assert len(said) == 2


def test_without_any_profile_nothing_is_reported():
    assert lines(arm("a", 1000, 1002), arm("b", 1001, 1003)) == []
