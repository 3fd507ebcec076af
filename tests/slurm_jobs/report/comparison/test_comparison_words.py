"""What a comparison claims, and what it would take to claim more, in words."""

from __future__ import annotations

import pytest

from slurm_jobs.report.comparison.compare import compare
from slurm_jobs.report.comparison.comparison_words import headline
from tests.slurm_jobs.report.comparison.arms import arm
from tests.slurm_jobs.report.comparison.measured import measured


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


def test_a_note_on_several_runs_is_reported_once_with_their_names():
    def noted(name: str, *notes: str):
        return measured(name, notes=tuple(f"{name}: {note}" for note in notes))

    first = [noted("a0", "x", "y"), noted("a1", "x", "y")]
    second = [noted("b0", "x"), noted("b1", "x", "z")]
    assert list(compare(first, second).warnings) == ["all 4 runs: x", "a0, a1: y", "b1: z"]
