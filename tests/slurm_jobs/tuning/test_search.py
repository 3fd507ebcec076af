"""Which trial of a tuning comes next, and when it stops."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_jobs.tuning.trial_lengths import LEAST_TRIALS
from slurm_jobs.tuning.tuning_sentence import TOO_SHORT
from tests.slurm_jobs.tuning.simulated import DATA_WAIT, MEMORY, PADDING, facts, simulate_tuning
from tests.slurm_jobs.tuning.speeds import flat, threads_help


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


def test_a_knob_that_fails_the_trial_is_rejected_and_tuning_continues():
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


def test_a_change_cut_off_by_the_budget_is_undecided_and_kept_ones_stay():
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


def test_on_other_nodes_only_an_open_comparison_starts_again():
    _, trials = simulate_tuning(facts(240), threads_help, most=9)  # two trials of the first knob
    tuning, after = simulate_tuning(facts(240, nodes=("n1",)), threads_help, trials=list(trials))
    assert after[9].purpose == "probe"
    assert [t.purpose for t in after[10:]].count("data") == 0
    first = tuning.tried[0].pairs
    assert {t.nodes for t in (*first.first, *first.second)} == {("n1",)}


def test_more_budget_later_tries_what_was_left():
    small = facts(budget_min=20 * 10 / 60)
    first, trials = simulate_tuning(small, flat)
    second, more = simulate_tuning(facts(240), flat, trials=list(trials))
    assert len(more) > len(trials)
    assert len(second.tried) > len(first.tried)


def test_both_arms_of_a_comparison_drop_what_either_may_have_read_ahead():
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


def test_reading_ahead_is_left_alone_where_trials_hardly_use_it_up():
    tuning, _ = simulate_tuning(facts(), flat)
    assert tuning.probe.num_steps - 5 < 3 * 8
    long, _ = simulate_tuning(facts(600), flat)
    tried = [one.proposal.name for one in long.tried]
    assert "num_prefetch_batches: 8" in tried
    short, _ = simulate_tuning(facts(budget_min=20 * 10 / 60, num_loader_threads=64), flat)
    (left,) = [one for one in short.not_tried if one.name == "num_prefetch_batches: 8"]
    assert (left.kind, left.why) == ("too_short", TOO_SHORT)
