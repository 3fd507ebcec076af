"""What a larger budget bears."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from slurm_jobs.tuning.budget_needs import left_for_knobs_s, open_trials
from slurm_jobs.tuning.pairs import MAX_REPEATS, TrialPairs
from slurm_jobs.tuning.trial_model import Trial


def pairs(first: list[float], second: list[float]) -> TrialPairs:
    def trials(speeds: list[float]) -> tuple[Trial, ...]:
        return tuple(
            Trial(
                number=1,
                basis="",
                purpose="knob",
                comparison="c",
                arm="A",
                changes=(),
                num_steps=10,
                nodes=("n0",),
                wall_s=1.0,
                tokens_per_s=speed,
            )
            for speed in speeds
        )

    return TrialPairs(first=trials(first), second=trials(second), failures=())


def test_an_open_comparison_needs_its_further_repeats_in_both_arms():
    tried = pairs([100.0, 104.0, 98.0], [104.0, 108.0, 101.0])
    verdict = tried.verdict
    assert verdict is not None
    assert verdict.more_runs == 5
    assert not tried.is_over
    assert open_trials([tried]) == 2 * (3 + 5) == 2 * MAX_REPEATS


def test_a_comparison_that_is_over_needs_none():
    assert open_trials([pairs([100.0, 101.0, 99.0], [200.0, 201.0, 199.0])]) == 0


def test_before_and_after_of_an_earlier_pass_are_spent() -> None:
    made = [("knob", 10.0), ("closing", 20.0), ("knob", 5.0), ("closing", 7.0)]
    trials: Any = [SimpleNamespace(purpose=purpose, wall_s=wall_s) for purpose, wall_s in made]
    assert left_for_knobs_s(100.0, trials) == 65.0
    assert left_for_knobs_s(100.0, trials[:2]) == 90.0
    assert left_for_knobs_s(100.0, []) == 100.0
