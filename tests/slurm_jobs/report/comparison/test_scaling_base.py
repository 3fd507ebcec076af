"""A base for scaling whose cores others held has a problem."""

from __future__ import annotations

import pytest

from slurm_jobs.report.comparison.scaling import scale
from slurm_jobs.report.comparison.scaling_base import HELD_SHARE, problems
from slurm_jobs.report.comparison.scaling_text import scaling_headline
from tests.slurm_jobs.report.comparison.measured import measured
from tests.slurm_jobs.report.comparison.scaled_runs import runs, with_batches


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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_allocator_retries": 3}, "memory pressure: 3 x allocator retry (r2)"),
        ({"cards": ("V100",)}, "different cards from the rest: V100, not A100"),
        ({"cpus": ("old",)}, "different processors from the rest: old, not new"),
        (
            {"token_stretches": (50.0, *[100.0] * 9)},
            "its first tenth ran at 50 % of the speed of the rest, as if it compiled then (r2)",
        ),
    ],
)
def test_the_problem_of_an_invalid_base_is_named(changed, said):
    usual = {"cards": ("A100",), "cpus": ("new",)}
    base = measured("r2", num_ranks=2, tokens_per_s=100.0, **{**usual, **changed})
    (series,) = scale([base, *runs({4: 190, 8: 370}, **usual)]).series
    assert series.as_given[0].problems[0].startswith(said)
    assert [p.num_ranks for p in series.honest] == [4, 8]


def test_a_base_with_another_batch_than_the_rest_is_unhealthy():
    given = with_batches((2, 1000, 16), (4, 1950, 64), (8, 3700, 64))
    (series,) = scale(given).series
    assert series.as_given[0].problems == (
        "different global batch from the rest: 16 samples a step, not 64",
    )
    assert [p.num_ranks for p in series.honest] == [4, 8]
    assert scaling_headline(series).startswith("baseline unhealthy: against 2 ranks")


def test_batch_sizes_unrelated_to_the_number_of_ranks_make_no_base_worse():
    given = with_batches((2, 1000, 16), (4, 1950, 64), (8, 3700, 72))
    assert [p.problems for p in scale(given).series[0].as_given] == [(), (), ()]


def test_a_flattering_second_base_is_not_called_valid():
    pressed = measured("r2", num_ranks=2, tokens_per_s=1000.0, num_allocator_retries=1)
    (series,) = scale([pressed, *runs({4: 1950, 8: 8000})]).series
    assert "205 % of ideal" in series.as_given[1].problems[0]
    assert series.honest == ()
    assert scaling_headline(series).startswith("baseline unhealthy, and no other is valid")


def test_a_valid_base_stays_when_a_point_has_other_cards():
    old, new = {"cards": ("V100",)}, {"cards": ("A100",)}
    (found,) = scale([*runs({2: 1000, 4: 1950}, **old), *runs({8: 8000}, **new)]).series
    assert found.as_given[0].problems == ()
    assert found.as_given[-1].problems == ("different cards from the rest: A100, not V100",)


def test_noise_alone_makes_no_base_unhealthy():
    noisy = [
        measured(f"r{num}-{i}", num_ranks=num, tokens_per_s=speed)
        for num, speeds in ((2, (900, 1100)), (4, (1900, 2340)))
        for i, speed in enumerate(speeds)
    ]
    base, last = scale(noisy).series[0].as_given
    assert last.efficiency > 1.05
    assert base.problems == ()


def trained(num, speed, strategy):
    settings = {"num_ranks": str(num), "train.config.strategy": strategy}
    return measured(f"r{num}-{strategy}", num_ranks=num, tokens_per_s=speed, settings=settings)


def test_one_rank_alone_is_the_base_of_every_strategy():
    found = scale([trained(1, 100, "single"), trained(2, 180, "ddp"), trained(2, 150, "fsdp2")])
    speedups = {series.name: series.as_given[-1].speedup for series in found.series}
    assert sorted(speedups.values()) == pytest.approx([1.5, 1.8])
    assert found.warnings == ()


def test_several_ranks_of_another_strategy_are_no_base():
    found = scale([trained(2, 180, "ddp"), trained(4, 300, "fsdp2")])
    assert found.series == ()
