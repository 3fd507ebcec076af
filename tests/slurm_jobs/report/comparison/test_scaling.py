"""Scaling: ideal, flattered and honest, among them the two cases of the small VLM."""

from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.comparison.scaling import scale
from slurm_jobs.report.comparison.scaling_text import scaling_headline
from tests.slurm_jobs.report.comparison.measured import GIGABYTE, measured
from tests.slurm_jobs.report.comparison.scaled_runs import runs, with_batches


def of_memory(speeds, peaks, **values):
    """V100 of 16 GB with these peaks in GB."""
    return [
        dataclasses.replace(
            run, run_id=f"{run.run_id}-{peak}", memory_peak_bytes=peak * GIGABYTE,
            memory_capacity_bytes=16 * GIGABYTE,
        )
        for run, peak in zip(runs(speeds, **values), peaks.values(), strict=True)
    ]  # fmt: skip


def test_efficiency_is_speed_over_ranks():
    (series,) = scale(runs({1: 100, 2: 190, 4: 340})).series
    assert series.kind == "strong"
    assert [p.speedup for p in series.as_given] == pytest.approx([1, 1.9, 3.4])
    assert [p.efficiency for p in series.as_given] == pytest.approx([1, 0.95, 0.85])
    assert series.honest == ()
    assert (
        scaling_headline(series) == "4 ranks are 3.40 times as fast (85 % of ideal), against 1 rank"
    )


def test_a_batch_that_grows_with_the_ranks_is_weak_scaling():
    assert scale(with_batches((1, 1000, 32), (2, 1000, 64))).series[0].kind == "weak"
    (series,) = scale(with_batches((1, 1000, 32), (2, 1000, 48))).series
    assert series.kind == "neither"
    assert series.batch_note == (
        "samples a step: 32 on 1, 48 on 2 ranks; neither equal in all nor equal a rank"
    )


def test_a_flattering_curve_is_reported_together_with_the_honest_one():
    """2 V100 at 12.94 of 16 GB made 8 of them look 5.8 times as fast: 145 % of ideal."""
    speeds = {2: 100.0, 4: 284.3, 8: 580.0}
    given = of_memory(speeds, {2: 12.94, 4: 9.5, 8: 8.1})
    (series,) = scale(given).series
    assert series.as_given[-1].efficiency == pytest.approx(1.45)
    assert series.as_given[0].problems == (
        "memory pressure: 12.1 GiB of 14.9 GiB at the peak, 81 % (r2-12.94)",
    )
    assert [p.num_ranks for p in series.honest] == [4, 8]
    assert series.honest[-1].efficiency == pytest.approx(1.02, abs=0.001)
    assert scaling_headline(series) == (
        "baseline unhealthy: against 2 ranks, 8 ranks are 5.80 times as fast (145 % of ideal); "
        "against the first valid base, 4 ranks, 8 ranks are 2.04 times as fast (102 % of ideal)"
    )


def test_the_small_vlm_with_checkpointing_is_a_separate_valid_series():
    """At 9.93 GB the same 2 to 8 were 4.07 times as fast: 102 %."""
    plain = of_memory({2: 100.0, 8: 580.0}, {2: 12.94, 8: 8.1})
    saving = of_memory(
        {2: 130.0, 8: 529.1},
        {2: 9.93, 8: 7.0},
        settings={"train.config.activation_checkpointing": "true"},
    )
    first, second = scale([*plain, *saving]).series
    assert "activation_checkpointing -" in first.name
    assert "activation_checkpointing true" in second.name
    assert scaling_headline(first).startswith(
        "baseline unhealthy, and no other is valid: do not trust that 8 ranks are 5.80"
    )
    assert second.as_given[0].problems == ()
    assert (
        scaling_headline(second)
        == "8 ranks are 4.07 times as fast (102 % of ideal), against 2 ranks"
    )


def test_more_than_linear_without_a_reason_in_the_records_is_not_believed():
    (series,) = scale(runs({2: 100, 8: 580})).series
    (said,) = series.as_given[0].problems
    assert "8 ranks are 5.80 times as fast, 145 % of ideal: no number of ranks adds more" in said


def test_of_a_few_steps_no_scaling_is_claimed():
    short = runs({2: 1000, 8: 3900}, num_steps=3, token_stretches=())
    with pytest.raises(ValueError, match="r2 has 3, r8 has 3, and 20 are needed; train for longer"):
        scale(short)
    found = scale([*short[1:], *runs({1: 500, 2: 990})])
    (series,) = found.series
    assert [p.num_ranks for p in series.as_given] == [1, 2]
    assert found.warnings[0].startswith("left out: too few steps after the warm-up: r8 has 3")


def test_a_slow_start_is_seen_in_runs_that_are_too_short_for_stretches():
    given = runs({2: 1000, 4: 2400}, num_steps=150, token_stretches=())
    given[0] = dataclasses.replace(given[0], start_share=0.2)
    (series,) = scale(given).series
    assert series.as_given[0].problems[0].startswith("its first tenth ran at 20 % of the speed")
    assert scaling_headline(series).startswith("baseline unhealthy")


def test_repeats_give_efficiency_an_interval():
    repeats = [
        measured(f"r{num}-{i}", num_ranks=num, tokens_per_s=speed + i)
        for num, speed in ((1, 100.0), (4, 380.0))
        for i in range(3)
    ]
    base, last = scale(repeats).series[0].as_given
    assert (base.low, base.high) == (None, None)
    assert last.low < last.efficiency < last.high
    assert len(last.runs) == 3


def test_runs_comparable_to_no_other_are_left_out_by_name():
    odd = measured("odd", num_ranks=8, settings={"train.config.precision": "fp32"})
    found = scale([*runs({1: 100, 2: 190}), odd])
    assert len(found.series) == 1
    (said,) = found.warnings
    assert said.startswith("left out, no run on another number of ranks is comparable: odd (")
    assert "train.config.precision fp32" in said


def test_different_code_is_a_warning_and_no_separate_series():
    given = [
        measured("a", num_ranks=1, settings={"code": "1111"}),
        measured("b", num_ranks=2, tokens_per_s=1900.0, settings={"code": "2222"}),
    ]
    found = scale(given)
    assert len(found.series) == 1
    assert found.warnings == ("the runs are of different code: 1111, 2222",)


def test_one_number_of_ranks_is_no_scaling():
    with pytest.raises(ValueError, match="all runs had 2 ranks;"):
        scale([measured("a"), measured("b")])


def test_a_run_without_tokens_has_no_speed():
    with pytest.raises(ValueError, match="b: no tokens were counted"):
        scale([measured("a"), measured("b", num_ranks=4, tokens_per_s=0.0)])
