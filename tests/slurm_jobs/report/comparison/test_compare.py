"""Two arms: what differs between them, and what weakens a claim."""

from __future__ import annotations

import pytest

from slurm_jobs.report.comparison.compare import compare
from tests.slurm_jobs.report.comparison.arms import arm
from tests.slurm_jobs.report.comparison.measured import measured

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
