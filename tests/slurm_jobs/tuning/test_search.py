"""What a tuning does next, how long its trials are, and what a larger budget bears."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.tuning.knobs import MAX_REPEATS, MIN_REPEATS, WARMUP_STEPS, Pairs, Trial
from slurm_jobs.tuning.search import (
    CLOSING_TRIALS,
    LEAST_TRIALS,
    PROBE_STEPS,
    least_budget_s,
    left_for_knobs_s,
    length_of,
    open_trials,
    progress_of,
)
from slurm_jobs.tuning.summary import TOO_SHORT
from tests.slurm_jobs.tuning.simulated import DATA_WAIT, MEMORY, PADDING, facts, simulate_tuning

# The search: which trial comes next, and when it stops.


def flat(_changes: dict[str, Any]) -> float:
    return 1000.0


def threads_help(changes: dict[str, Any]) -> float:
    """Up to 8 threads."""
    return 400.0 * min(8, changes.get("num_loader_threads", 2))


def test_the_control_without_data_is_measured_first_and_interleaved():
    tuning, trials = simulate_tuning(facts(), flat)
    control = [t for t in trials if t.purpose == "data"]
    assert [t.purpose for t in trials[:7]] == ["probe", *["data"] * 6]
    assert "".join(t.arm for t in control) == "ABBAAB"
    assert tuning.control.verdict.ratio == pytest.approx(1.6, rel=0.02)


def test_nothing_is_kept_where_nothing_is_faster_and_nothing_is_closed():
    tuning, _ = simulate_tuning(facts(), flat)
    assert tuning.kept == ()
    assert tuning.closing is None
    assert {one.outcome for one in tuning.tried} == {"rejected"}
    assert {one.why for one in tuning.tried} <= {"equal", "slower", "cannot tell"}


def test_a_knob_that_helps_is_turned_again_until_it_no_longer_does():
    tuning, _ = simulate_tuning(facts(240), threads_help)
    assert [change.text for change in tuning.kept] == [
        "num_loader_threads: 4",
        "num_loader_threads: 8",
    ]
    rejected = [one.proposal.name for one in tuning.tried if one.outcome == "rejected"]
    assert "num_loader_threads: 16" in rejected


def test_before_and_after_are_measured_side_by_side_at_the_end():
    tuning, trials = simulate_tuning(facts(240), threads_help)
    closing = [t for t in trials if t.purpose == "closing"]
    assert trials[-len(closing) :] == closing
    assert len(closing) == 2 * MIN_REPEATS
    assert {t.changes for t in closing if t.arm == "A"} == {()}
    assert {t.changes for t in closing if t.arm == "B"} == {tuning.kept}
    assert tuning.closing.verdict.word == "faster"


def test_no_finding_means_no_knob_is_turned():
    tuning, trials = simulate_tuning(facts(), flat, lambda _: [])
    assert tuning.tried == ()
    assert {t.purpose for t in trials} == {"probe", "data"}


def test_the_strongest_finding_comes_first_and_one_without_a_ceiling_last():
    tuning, _ = simulate_tuning(facts(600), flat, lambda _: [MEMORY, PADDING, DATA_WAIT])
    rules = list(dict.fromkeys(one.proposal.cause.rule for one in tuning.tried))
    assert rules == ["data-wait", "memory-pressure"]  # nothing of padding may be turned
    why = {one.name: one.why for one in tuning.not_tried}
    assert why["batching"].startswith("would change what is learned")


def test_an_arm_that_differs_too_little_to_tell_gets_more_repeats_up_to_a_limit():
    noisy = iter(range(10_000))

    def speed(changes: dict[str, Any]) -> float:
        gain = 1.03 if changes else 1.0
        return 1000.0 * gain * (1 + 0.02 * (next(noisy) % 3 - 1))

    tuning, _ = simulate_tuning(facts(600), speed)
    repeats = [len(one.pairs.first) for one in tuning.tried]
    assert max(repeats) > MIN_REPEATS
    assert max(repeats) <= MAX_REPEATS


def test_the_budget_is_held_and_what_it_did_not_reach_is_named():
    tuning, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), flat)
    assert sum(t.wall_s for t in trials) <= 20 * 10
    left = next(one for one in tuning.not_tried if one.needs_s is not None)
    assert left.needs_s == pytest.approx(120)
    assert left.why == (
        "70.0 s of the budget were left, and one more comparison with before and after takes about "
        "2 min 00 s"
    )


def test_with_the_budget_that_is_named_the_next_change_is_compared():
    tuning, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), flat)
    num_tried, minutes = len(tuning.tried), tuning.more_budget_min
    assert minutes is not None
    assert sum(t.wall_s for t in trials) + 120 <= 60 * minutes
    more, _ = simulate_tuning(facts(budget_min=minutes), flat, trials=trials)
    assert len(more.tried) > num_tried
    assert simulate_tuning(facts(600), flat)[0].more_budget_min is None


def test_before_and_after_are_measured_again_when_a_resume_kept_more():
    first, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), threads_help)
    assert first.closing is not None
    last, _ = simulate_tuning(facts(600), threads_help, trials=trials)
    assert len(last.kept) > len(first.kept)
    assert {t.changes for t in last.closing.second} == {last.kept}


def test_time_for_before_and_after_is_kept_back():
    tuning, trials = simulate_tuning(facts(budget_min=20 * 10 / 60), threads_help)
    assert [t.purpose for t in trials].count("closing") == 2 * MIN_REPEATS
    assert tuning.closing.verdict is not None
    assert sum(t.wall_s for t in trials) <= 20 * 10 + 10


def test_a_comparison_is_ended_where_trials_come_to_take_longer_than_the_probe():
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


def test_a_budget_that_is_too_small_says_what_the_least_is():
    tuning, trials = simulate_tuning(facts(budget_min=1), flat)
    assert len(trials) == 1
    least_min = -(-(1 + LEAST_TRIALS) * 10 // 60)
    assert f"before and after need {least_min} min; give --budget {least_min + 1} or more" in (
        tuning.problem
    )
    assert tuning.advised_budget_min == least_min + 1
    enough, _ = simulate_tuning(facts(budget_min=least_min), flat)
    assert enough.problem == ""


def test_a_knob_that_makes_the_trial_fail_is_rejected_and_the_tuning_goes_on():
    def fails(ask: Any) -> str:
        threads = [c for c in ask.changes if c.key == "num_loader_threads"]
        return "rank 0: it ran out of memory" if threads else ""

    tuning, trials = simulate_tuning(facts(), flat, fails=fails)
    failed = [one for one in tuning.tried if one.outcome == "failed"]
    assert [one.why for one in failed] == ["rank 0: it ran out of memory"]
    assert len([t for t in trials if t.failure]) == 1
    assert len(tuning.tried) > 1


def test_a_training_that_fails_as_it_is_ends_the_tuning_with_its_reason():
    tuning, trials = simulate_tuning(facts(), flat, fails=lambda _ask: "rank 1: no GPU")
    assert len(trials) == 2
    assert tuning.problem.endswith("rank 1: no GPU")


def test_a_training_that_runs_no_longer_ends_the_tuning_with_its_reason():
    def fails(ask: Any) -> str:
        return "rank 1: no GPU" if ask.purpose == "data" and ask.arm == "A" else ""

    tuning, _ = simulate_tuning(facts(), flat, fails=fails)
    assert tuning.problem == "the training as it is no longer runs: rank 1: no GPU"


def test_a_change_whose_first_arm_fails_later_is_undecided():
    def fails(ask: Any) -> str:
        return "rank 1: no GPU" if ask.purpose == "knob" and ask.arm == "A" else ""

    tuning, _ = simulate_tuning(facts(), flat, fails=fails)
    assert {(one.outcome, one.why) for one in tuning.tried} == {
        ("undecided", "the training without it failed: rank 1: no GPU")
    }


def test_a_change_that_the_budget_cuts_off_is_undecided_and_what_was_kept_stays():
    _, trials = simulate_tuning(facts(240), threads_help, most=15)  # two of the second change
    trials[-1] = replace(trials[-1], wall_s=240 * 60.0)
    tuning, after = simulate_tuning(facts(240), threads_help, trials=list(trials))
    assert after == trials
    assert [(one.outcome, one.why) for one in tuning.tried] == [
        ("kept", "faster"),
        ("undecided", "the budget was used up"),
    ]


def test_a_first_start_with_cold_caches_is_measured_again():
    given = facts(budget_min=20 * 10 / 60)
    _, trials = simulate_tuning(given, flat, most=1)
    cold = [replace(trials[0], wall_s=20.0)]
    tuning, done = simulate_tuning(given, flat, trials=cold)
    assert [t.purpose for t in done[:3]] == ["probe", "probe", "data"]
    assert (tuning.problem, tuning.probe) == ("", done[1])


@pytest.mark.parametrize("num_trials", [1, 3, 9, 12, 20])
def test_a_killed_tuning_goes_on_where_it_was(num_trials: int):
    whole, trials = simulate_tuning(facts(240), threads_help)
    cut = trials[:num_trials]
    resumed, again = simulate_tuning(facts(240), threads_help, trials=list(cut))
    assert again == trials
    assert resumed == whole


def test_on_other_nodes_an_open_comparison_starts_again_and_a_finished_one_is_kept():
    _, trials = simulate_tuning(facts(240), threads_help, most=9)  # two trials of the first knob
    tuning, after = simulate_tuning(facts(240, nodes=("n1",)), threads_help, trials=list(trials))
    assert after[9].purpose == "probe"
    assert [t.purpose for t in after[10:]].count("data") == 0
    first = tuning.tried[0].pairs
    assert {t.nodes for t in (*first.first, *first.second)} == {("n1",)}


def test_a_change_that_does_not_fit_the_config_is_named_and_not_tried():
    given = facts(600, strategy="fsdp2", sharding={"unit_min_params": 5})
    exposed = DATA_WAIT.__class__(rule="exposed-communication", title="t", ceiling="c", times=1.2)
    tuning, _ = simulate_tuning(given, flat, lambda _: [exposed])
    why = {one.name: one.why for one in tuning.not_tried}
    assert "leave sharding out" in why['strategy: "ddp"']


def test_more_budget_later_tries_what_was_left():
    small = facts(budget_min=20 * 10 / 60)
    first, trials = simulate_tuning(small, flat)
    second, more = simulate_tuning(facts(240), flat, trials=list(trials))
    assert len(more) > len(trials)
    assert len(second.tried) > len(first.tried)


def test_both_arms_of_a_comparison_drop_all_that_either_may_have_read_ahead():
    asks = []

    def fails(ask: Any) -> str:
        asks.append(ask)
        return ""

    def helps(changes: dict[str, Any]) -> float:
        return 100.0 * changes.get("num_prefetch_batches", 4)

    tuning, _ = simulate_tuning(facts(600), helps, fails=fails)
    ahead = [change.value for change in tuning.kept if change.key == "num_prefetch_batches"]
    assert len(ahead) > 1
    tried = [ask for ask in asks if ask.changes and ask.changes[-1].key == "num_prefetch_batches"]
    of_both = {ask.comparison: ask.num_dropped_steps for ask in tried}
    assert {ask.num_dropped_steps for ask in asks if ask.comparison == tried[0].comparison} == {8}
    assert list(of_both.values())[: len(ahead)] == ahead
    assert {a.num_dropped_steps for a in asks if a.purpose == "closing"} == {ahead[-1]}
    assert {a.num_dropped_steps for a in asks if a.purpose == "data" and a.arm == "A"} == {4}
    assert {a.num_dropped_steps for a in asks if a.num_kept_steps} == {0}


def test_reading_ahead_is_left_alone_where_trials_hardly_empty_what_is_read_ahead():
    tuning, _ = simulate_tuning(facts(), flat)
    assert tuning.probe.num_steps - 5 < 3 * 8
    long, _ = simulate_tuning(facts(600), flat)
    tried = [one.proposal.name for one in long.tried]
    assert "num_prefetch_batches: 8" in tried
    short, _ = simulate_tuning(facts(budget_min=20 * 10 / 60, num_loader_threads=64), flat)
    assert {one.name: one.why for one in short.not_tried}["num_prefetch_batches: 8"] == TOO_SHORT


def test_the_progress_after_the_same_trials_is_the_same():
    _, trials = simulate_tuning(facts(), flat)
    assert progress_of(facts(), trials) == progress_of(facts(), trials)


# The length of trials.


def probe(*, start_s: float, step_s: float) -> Trial:
    return Trial(
        number=1,
        basis="b",
        purpose="probe",
        comparison="probe",
        arm="A",
        changes=(),
        num_steps=PROBE_STEPS,
        nodes=("n0",),
        wall_s=start_s + PROBE_STEPS * step_s,
        tokens_per_s=1.0,
        step_s=step_s,
    )


def measured_s(made: Trial, budget_s: float) -> float:
    return (length_of(made, budget_s).num_steps - WARMUP_STEPS) * made.step_s


def num_trials(made: Trial, budget_s: float) -> float:
    return (budget_s - made.wall_s) / length_of(made, budget_s).trial_s


@pytest.mark.parametrize("start_s", [20.0, 60.0, 150.0])
def test_a_trial_measures_as_long_as_its_start_takes_where_two_knobs_still_fit(start_s: float):
    made = probe(start_s=start_s, step_s=0.1)
    budget_s = made.wall_s + 4 * CLOSING_TRIALS * 2.1 * start_s
    assert measured_s(made, budget_s) == pytest.approx(start_s, abs=made.step_s)
    assert num_trials(made, budget_s) >= 4 * CLOSING_TRIALS


def test_where_two_knobs_of_such_trials_do_not_fit_they_are_as_long_as_two_knobs_allow():
    made = probe(start_s=60.0, step_s=0.1)
    assert 5 < measured_s(made, 30 * 60) < 60
    assert num_trials(made, 30 * 60) == pytest.approx(4 * CLOSING_TRIALS, rel=0.01)


def test_short_starts_leave_room_for_four_knobs_of_longer_trials():
    made = probe(start_s=5.0, step_s=0.1)
    assert measured_s(made, 30 * 60) > 30
    assert num_trials(made, 30 * 60) == pytest.approx(6 * CLOSING_TRIALS, rel=0.01)


def test_a_trial_measures_a_minute_of_steps_at_most_where_its_start_is_shorter():
    assert measured_s(probe(start_s=5.0, step_s=0.1), 24 * 3600) == pytest.approx(60, abs=0.1)


def test_the_least_budget_holds_trials_of_the_fewest_steps_that_can_be_judged():
    made = probe(start_s=60.0, step_s=2.0)
    budget_s = least_budget_s(made)
    assert length_of(made, budget_s).num_steps == PROBE_STEPS
    assert num_trials(made, budget_s) == pytest.approx(LEAST_TRIALS)


# The budget.


def pairs(first: list[float], second: list[float]) -> Pairs:
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

    return Pairs(first=trials(first), second=trials(second), failures=())


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
