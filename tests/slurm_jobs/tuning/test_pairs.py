"""Interleaved trials of two arms, until the result is clear or the time is over."""

from dataclasses import replace
from typing import Any

from slurm_jobs.tuning.pairs import MAX_REPEATS, MIN_REPEATS
from tests.slurm_jobs.tuning.simulated import facts, simulate_tuning
from tests.slurm_jobs.tuning.speeds import threads_help


def test_before_and_after_are_measured_side_by_side_at_the_end():
    tuning, trials = simulate_tuning(facts(240), threads_help)
    closing = [t for t in trials if t.purpose == "closing"]
    assert trials[-len(closing) :] == closing
    assert len(closing) == 2 * MIN_REPEATS
    assert {t.changes for t in closing if t.arm == "A"} == {()}
    assert {t.changes for t in closing if t.arm == "B"} == {tuning.kept}
    assert tuning.closing.verdict.word == "faster"


def test_an_arm_that_differs_too_little_gets_more_repeats_up_to_a_limit():
    noisy = iter(range(10_000))

    def speed(changes: dict[str, Any]) -> float:
        gain = 1.03 if changes else 1.0
        return 1000.0 * gain * (1 + 0.02 * (next(noisy) % 3 - 1))

    tuning, _ = simulate_tuning(facts(600), speed)
    repeats = [len(one.pairs.first) for one in tuning.tried]
    assert max(repeats) > MIN_REPEATS
    assert max(repeats) <= MAX_REPEATS


def test_time_for_before_and_after_is_kept_back():
    tuning, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), threads_help)
    assert [t.purpose for t in trials].count("closing") == 2 * MIN_REPEATS
    assert tuning.closing.verdict is not None
    assert sum(t.wall_s for t in trials) <= 20 * 10 + 10


def test_a_comparison_ends_where_trials_take_longer_than_the_probe():
    given = facts(budget_min=21 * 10 / 60)
    _, trials = simulate_tuning(given, threads_help, most=8)
    slower = [replace(t, wall_s=15.0) if t.number > 6 else t for t in trials]
    tuning, done = simulate_tuning(given, threads_help, trials=slower)
    assert [one.outcome for one in tuning.tried] == ["kept"]
    assert [t.purpose for t in done].count("knob") == 2 * MIN_REPEATS


def test_a_control_that_cannot_tell_leaves_time_for_a_knob():
    noisy = iter(range(10_000))

    def speed(_changes: dict[str, Any]) -> float:
        return 1000.0 * (1 + 0.3 * (next(noisy) % 3 - 1))

    _, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), speed)
    purposes = [t.purpose for t in trials]
    assert purposes.count("data") == 2 * MIN_REPEATS
    assert purposes.count("knob") >= 2 * MIN_REPEATS
