"""What a tuning does next, in which order, and when it stops."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_jobs.tuning.knobs import MAX_REPEATS, MIN_REPEATS
from slurm_jobs.tuning.search import LEAST_TRIALS, follow
from slurm_jobs.tuning.summary import TOO_SHORT
from tests.slurm_jobs.tuning.simulated import DATA_WAIT, MEMORY, PADDING, course_of, facts


def flat(_changes: dict[str, Any]) -> float:
    return 1000.0


def threads_help(changes: dict[str, Any]) -> float:
    """Up to 8 threads."""
    return 400.0 * min(8, changes.get("num_loader_threads", 2))


def test_the_control_without_data_is_measured_first_and_interleaved():
    course, trials = course_of(facts(), flat)
    control = [t for t in trials if t.purpose == "data"]
    assert [t.purpose for t in trials[:7]] == ["probe", *["data"] * 6]
    assert "".join(t.arm for t in control) == "ABBAAB"
    assert course.control.verdict.ratio == pytest.approx(1.6, rel=0.02)


def test_nothing_is_kept_where_nothing_is_faster_and_nothing_is_closed():
    course, _ = course_of(facts(), flat)
    assert course.kept == ()
    assert course.closing is None
    assert {one.outcome for one in course.tried} == {"rejected"}
    assert {one.why for one in course.tried} <= {"equal", "slower", "cannot tell"}


def test_a_knob_that_helps_is_turned_again_until_it_no_longer_does():
    course, _ = course_of(facts(240), threads_help)
    assert [change.text for change in course.kept] == [
        "num_loader_threads: 4",
        "num_loader_threads: 8",
    ]
    rejected = [one.proposal.name for one in course.tried if one.outcome == "rejected"]
    assert "num_loader_threads: 16" in rejected


def test_before_and_after_are_measured_side_by_side_at_the_end():
    course, trials = course_of(facts(240), threads_help)
    closing = [t for t in trials if t.purpose == "closing"]
    assert trials[-len(closing) :] == closing
    assert len(closing) == 2 * MIN_REPEATS
    assert {t.changes for t in closing if t.arm == "A"} == {()}
    assert {t.changes for t in closing if t.arm == "B"} == {course.kept}
    assert course.closing.verdict.word == "faster"


def test_no_finding_means_no_knob_is_turned():
    course, trials = course_of(facts(), flat, lambda _: [])
    assert course.tried == ()
    assert {t.purpose for t in trials} == {"probe", "data"}


def test_the_strongest_finding_comes_first_and_one_without_a_ceiling_last():
    course, _ = course_of(facts(600), flat, lambda _: [MEMORY, PADDING, DATA_WAIT])
    rules = list(dict.fromkeys(one.proposal.cause.rule for one in course.tried))
    assert rules == ["data-wait", "memory-pressure"]  # nothing of padding may be turned
    why = {one.name: one.why for one in course.not_tried}
    assert why["batching"].startswith("would change what is learned")


def test_an_arm_that_differs_too_little_to_tell_gets_more_repeats_up_to_a_limit():
    noisy = iter(range(10_000))

    def speed(changes: dict[str, Any]) -> float:
        gain = 1.03 if changes else 1.0
        return 1000.0 * gain * (1 + 0.02 * (next(noisy) % 3 - 1))

    course, _ = course_of(facts(600), speed)
    repeats = [len(one.pairs.first) for one in course.tried]
    assert max(repeats) > MIN_REPEATS
    assert max(repeats) <= MAX_REPEATS


def test_the_budget_is_held_and_what_it_did_not_reach_is_named():
    course, trials = course_of(facts(budget_min=20 * 10 / 60), flat)
    assert sum(t.wall_s for t in trials) <= 20 * 10
    left = next(one for one in course.not_tried if one.needs_s is not None)
    assert left.needs_s == pytest.approx(120)
    assert left.why == (
        "70.0 s of the budget were left, and one more comparison with before and after takes about "
        "2 min 00 s"
    )


def test_with_the_budget_that_is_named_the_next_change_is_compared():
    course, trials = course_of(facts(budget_min=20 * 10 / 60), flat)
    num_tried, minutes = len(course.tried), course.more_budget_min
    assert minutes is not None
    assert sum(t.wall_s for t in trials) + 120 <= 60 * minutes
    more, _ = course_of(facts(budget_min=minutes), flat, trials=trials)
    assert len(more.tried) > num_tried
    assert course_of(facts(600), flat)[0].more_budget_min is None


def test_before_and_after_are_made_anew_where_a_resume_kept_more():
    first, trials = course_of(facts(budget_min=20 * 10 / 60), threads_help)
    assert first.closing is not None
    last, _ = course_of(facts(600), threads_help, trials=trials)
    assert len(last.kept) > len(first.kept)
    assert {t.changes for t in last.closing.second} == {last.kept}


def test_time_for_before_and_after_is_kept_back():
    course, trials = course_of(facts(budget_min=20 * 10 / 60), threads_help)
    assert [t.purpose for t in trials].count("closing") == 2 * MIN_REPEATS
    assert course.closing.verdict is not None
    assert sum(t.wall_s for t in trials) <= 20 * 10 + 10


def test_a_comparison_is_ended_where_trials_come_to_take_longer_than_the_probe():
    given = facts(budget_min=21 * 10 / 60)
    _, trials = course_of(given, threads_help, most=8)
    slower = [replace(t, wall_s=15.0) if t.number > 6 else t for t in trials]
    course, done = course_of(given, threads_help, trials=slower)
    assert [one.outcome for one in course.tried] == ["kept"]
    assert [t.purpose for t in done].count("knob") == 2 * MIN_REPEATS


def test_a_control_that_cannot_tell_leaves_time_for_a_knob():
    noisy = iter(range(10_000))

    def speed(_changes: dict[str, Any]) -> float:
        return 1000.0 * (1 + 0.3 * (next(noisy) % 3 - 1))

    _, trials = course_of(facts(budget_min=20 * 10 / 60), speed)
    purposes = [t.purpose for t in trials]
    assert purposes.count("data") == 2 * MIN_REPEATS
    assert purposes.count("knob") >= 2 * MIN_REPEATS


def test_a_budget_that_is_too_small_says_what_the_least_is():
    course, trials = course_of(facts(budget_min=1), flat)
    assert len(trials) == 1
    least_min = -(-(1 + LEAST_TRIALS) * 10 // 60)
    assert f"before and after need {least_min} min; give --budget {least_min + 1} or more" in (
        course.problem
    )
    assert course.advised_budget_min == least_min + 1
    enough, _ = course_of(facts(budget_min=least_min), flat)
    assert enough.problem == ""


def test_a_knob_that_makes_the_trial_fail_is_rejected_and_the_tuning_goes_on():
    def fails(ask: Any) -> str:
        threads = [c for c in ask.changes if c.key == "num_loader_threads"]
        return "rank 0: it ran out of memory" if threads else ""

    course, trials = course_of(facts(), flat, fails=fails)
    failed = [one for one in course.tried if one.outcome == "failed"]
    assert [one.why for one in failed] == ["rank 0: it ran out of memory"]
    assert len([t for t in trials if t.failure]) == 1
    assert len(course.tried) > 1


def test_a_training_that_fails_as_it_is_ends_the_tuning_with_its_reason():
    course, trials = course_of(facts(), flat, fails=lambda _ask: "rank 1: no GPU")
    assert len(trials) == 2
    assert course.problem.endswith("rank 1: no GPU")


@pytest.mark.parametrize("num_trials", [1, 3, 9, 12, 20])
def test_a_killed_tuning_goes_on_where_it_was(num_trials: int):
    whole, trials = course_of(facts(240), threads_help)
    cut = trials[:num_trials]
    resumed, again = course_of(facts(240), threads_help, trials=list(cut))
    assert again == trials
    assert resumed == whole


def test_on_other_nodes_an_open_comparison_begins_anew_and_a_finished_one_stands():
    _, trials = course_of(facts(240), threads_help, most=9)  # two trials of the first knob
    course, after = course_of(facts(240, nodes=("n1",)), threads_help, trials=list(trials))
    assert after[9].purpose == "probe"
    assert [t.purpose for t in after[10:]].count("data") == 0
    first = course.tried[0].pairs
    assert {t.nodes for t in (*first.first, *first.second)} == {("n1",)}


def test_a_change_that_does_not_fit_the_config_is_named_and_not_tried():
    given = facts(600, strategy="fsdp2", sharding={"unit_min_params": 5})
    exposed = DATA_WAIT.__class__(rule="exposed-communication", title="t", ceiling="c", times=1.2)
    course, _ = course_of(given, flat, lambda _: [exposed])
    why = {one.name: one.why for one in course.not_tried}
    assert "leave sharding out" in why['strategy: "ddp"']


def test_more_budget_later_tries_what_was_left():
    small = facts(budget_min=20 * 10 / 60)
    first, trials = course_of(small, flat)
    second, more = course_of(facts(240), flat, trials=list(trials))
    assert len(more) > len(trials)
    assert len(second.tried) > len(first.tried)


def test_both_arms_of_a_comparison_drop_all_that_either_may_have_read_ahead():
    asks = []

    def fails(ask: Any) -> str:
        asks.append(ask)
        return ""

    def helps(changes: dict[str, Any]) -> float:
        return 100.0 * changes.get("num_prefetch_batches", 4)

    course, _ = course_of(facts(600), helps, fails=fails)
    ahead = [change.value for change in course.kept if change.key == "num_prefetch_batches"]
    assert len(ahead) > 1
    tried = [ask for ask in asks if ask.changes and ask.changes[-1].key == "num_prefetch_batches"]
    of_both = {ask.comparison: ask.num_dropped_steps for ask in tried}
    assert {ask.num_dropped_steps for ask in asks if ask.comparison == tried[0].comparison} == {8}
    assert list(of_both.values())[: len(ahead)] == ahead
    assert {a.num_dropped_steps for a in asks if a.purpose == "closing"} == {ahead[-1]}
    assert {a.num_dropped_steps for a in asks if a.purpose == "data" and a.arm == "A"} == {4}
    assert {a.num_dropped_steps for a in asks if a.num_kept_steps} == {0}


def test_reading_ahead_is_left_alone_where_trials_hardly_empty_what_is_read_ahead():
    course, _ = course_of(facts(), flat)
    assert course.probe.num_steps - 5 < 3 * 8
    long, _ = course_of(facts(600), flat)
    tried = [one.proposal.name for one in long.tried]
    assert "num_prefetch_batches: 8" in tried
    short, _ = course_of(facts(budget_min=20 * 10 / 60, num_loader_threads=64), flat)
    assert {one.name: one.why for one in short.not_tried}["num_prefetch_batches: 8"] == TOO_SHORT


def test_the_course_of_the_same_trials_is_the_same():
    _, trials = course_of(facts(), flat)
    assert follow(facts(), trials) == follow(facts(), trials)
