"""Numbers of a training: steps, rates, losses, phases, and what of them counts."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from slurm_jobs.formats.records.attempt_records import AttemptRecord
from slurm_jobs.report.numbers.headline import make_tiles
from slurm_jobs.report.numbers.trainings.training_rates import ranks_of, rates
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.rules.training.meetings import meetings
from slurm_jobs.report.rules.training.straggler import straggler
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import (
    attempts_of,
    edited,
    make_steps,
    notes_with,
    outcomes,
    printed,
    rank_timing,
    report_from,
    report_on,
    seconds_of,
    training_of,
    with_intents,
    with_stage,
)


def numbers_of(attempts, fingerprints=(), **said):
    """The numbers of a stage with the given records: a list of attempts, each a list of ranks."""
    timings = [
        rank_timing(attempt, rank, steps, **said)
        for attempt, ranks in enumerate(attempts, 1)
        for rank, steps in enumerate(ranks)
    ]
    records = tuple(
        AttemptRecord(
            stage="train", slice_index=0, attempt=number, job_id="7", token="t7", pid=1, host="n1",
            fingerprint=fingerprint, started_unix_s=0.0, node_names=("n1",), num_ranks=1, restart=0,
            scheduler="local",
        )
        for number, fingerprint in enumerate(fingerprints, 1)
    )  # fmt: skip
    return training_of(*timings, attempts=records)


def of_two_ranks(num_steps=60):
    return [make_steps(num_steps, rank=rank, num_ranks=2) for rank in (0, 1)]


# Phases and rates.


def test_phases_add_up_to_the_whole_step_over_all_ranks_and_for_each(report_of):
    numbers = report_of().training[0]
    assert sum(p.share for p in numbers.phases) == pytest.approx(1.0)
    for rank in numbers.ranks:
        assert sum(rank.phases_s.values()) == pytest.approx(rank.step_mean_s)


def test_time_that_no_phase_recorded_shows_as_unexplained():
    steps = make_steps(60)
    steps["step_s"] += 0.2
    (found,) = [p for p in numbers_of([[steps]]).phases if p.kind == "unexplained"]
    assert found.seconds == pytest.approx(0.203, rel=1e-3)


def test_rates_are_over_wall_time_waits_included(report_of):
    numbers = report_of(stopped_at=None, data_wait_s=0.3).training[0]
    mean_step_s = numbers.ranks[0].step_mean_s
    assert numbers.steps_per_s.value == pytest.approx(1 / mean_step_s, rel=1e-3)
    assert numbers.samples_per_s.value == pytest.approx(64 / mean_step_s, rel=1e-3)


def test_padding_is_the_share_of_all_token_slots(report_of):
    numbers = report_of(padding_share=0.3).training[0]
    assert numbers.padding_share.value == pytest.approx(0.3, abs=0.002)


@pytest.mark.parametrize(
    ("field", "statistic", "plain", "odd"),
    [
        ("num_padding_tokens", "padding_share", 300, 3000),
        ("num_microbatches", "num_microbatches", 2, 64),
        ("step_s", "step_median_s", 0.5, 40.0),
        ("num_samples", "samples_per_s", 32, 1),
    ],
)
@pytest.mark.parametrize("num_steps", [8, 60])
def test_no_statistic_of_steps_includes_the_warm_up(field, statistic, plain, odd, num_steps):
    even = make_steps(num_steps)
    even[field] = plain
    warm = even.copy()
    warm[field][:5] = odd
    assert getattr(numbers_of([[warm]]), statistic) == getattr(numbers_of([[even]]), statistic)


def test_padding_is_unknown_where_all_steps_are_warm_up():
    share = numbers_of([[make_steps(4)]]).padding_share
    assert (share.value, share.missing) == (None, "no step is left after the warm-up")


def test_a_clock_that_is_set_back_changes_no_rate_and_is_named():
    steps = make_steps(60)
    back = steps.copy()
    back["start_unix_s"][30:] -= 100.0
    even, numbers = numbers_of([[steps]]), numbers_of([[back]])
    assert numbers.tokens_per_s == even.tokens_per_s
    assert numbers.curves.tokens_per_s == even.curves.tokens_per_s
    assert even.notes == ()
    assert "wall clock" in numbers.notes[0]


def test_a_rank_that_recorded_fewer_steps_lowers_no_rate_and_is_named():
    steps = make_steps(100)
    even, short = numbers_of([[steps[:60], steps[:60]]]), numbers_of([[steps, steps[:60]]])
    assert short.tokens_per_s == even.tokens_per_s
    assert short.samples_per_s == even.samples_per_s
    assert "60 by rank 1, 100 at most" in short.notes[0]
    # The curves are shorter, the progress is not.
    assert short.num_steps == numbers_of([[steps[:60], steps]]).num_steps == 100
    assert short.curves.step[-1] < 60


def test_an_attempt_of_which_a_rank_left_no_records_has_no_rate():
    numbers = numbers_of([[make_steps(60)]], num_ranks=2)
    assert numbers.num_ranks == 2
    assert numbers.tokens_per_s.value is None
    assert "records of all its ranks" in numbers.tokens_per_s.missing
    assert "1 of 2 ranks left no step records" in numbers.notes[0]


def test_notes_on_the_records_stand_in_the_report(run_of):
    paths, rows = run_of(stopped_at=None)
    file = paths.timing_dir("train", 0, 1) / "rank-00001.steps"
    file.write_bytes(file.read_bytes()[:-20_000])
    assert notes_with(report_on(paths, rows), "train, attempt 1: the ranks rec")


def test_too_few_steps_are_reported_and_not_judged(report_of):
    report = report_of(num_steps=24, stopped_at=None)
    assert "19 steps after a warm-up of 5" in report.training[0].too_few
    assert outcomes(report, "data-wait", "padding") == ("abstained", "abstained")


def test_fewer_steps_than_the_warm_up_break_nothing(report_of):
    numbers = report_of(num_steps=3, stopped_at=None).training[0]
    assert numbers.phases == ()
    assert numbers.tokens_per_s.value is None
    assert "warm-up" in numbers.tokens_per_s.missing


def test_a_hundred_thousand_steps_of_eight_ranks_take_only_seconds():
    ranks = [make_steps(100_000)] * 8
    start = time.process_time()
    numbers = numbers_of([ranks])
    assert time.process_time() - start < 20  # a quadratic one takes minutes
    assert len(numbers.curves.loss) == 240


# Work that was done again, or under another config.


def after_new_config(run_of, **properties):
    """The report of a training whose second attempt worked under another fingerprint."""
    paths, rows = run_of(**properties)
    with edited(paths.attempt("train", 0, 2)) as record:
        record["fingerprint"] = "0ther"
    return report_on(paths, rows)


def test_steps_of_an_abandoned_config_are_not_called_repeated(run_of):
    report = after_new_config(run_of, stopped_at=60, resumed_at=0)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps, numbers.repeated_s) == (400, 0, 0.0)
    assert numbers.num_abandoned_steps == 60
    assert numbers.abandoned_s > 30
    assert not any("repeated-steps" in finding.rule_id for finding in report.findings)
    assert notes_with(report, "train, attempt 1: 60 steps under an earlier config or code")
    assert numbers.curves.resumed_at == ()
    found = seconds_of(numbers.budget)
    assert found["steps of an earlier config"] == pytest.approx(numbers.abandoned_s)
    assert "steps repeated later" not in found


def test_steps_that_a_new_config_goes_on_from_and_does_again_are_repeated(run_of):
    report = after_new_config(run_of)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps) == (400, 20)
    assert numbers.num_abandoned_steps == 0
    assert not notes_with(report, "earlier config")


FROM_START, GOES_ON = [slice(60), slice(100)], [slice(60), slice(40, 80), slice(100)]


@pytest.mark.parametrize(
    ("parts", "fingerprints", "said", "repeated", "abandoned"),
    [
        pytest.param(
            [*GOES_ON[:2], slice(100), slice(30)], "1221", {}, 60 + 40 + 100, 0,
            id="a config that went on from another is the same training from then on",
        ),
        pytest.param(
            FROM_START, "12", {"training": "7ra1n"}, 60, 0,
            id="before the first checkpoint, and the training says so",
        ),
        pytest.param(FROM_START, "12", {}, 0, 60, id="before the first checkpoint, older records"),
        pytest.param(GOES_ON, "112", {}, 20, 40 + 40, id="twice within an abandoned config"),
        pytest.param(GOES_ON, "111", {}, 60 + 40, 0, id="one config"),
    ],
)  # fmt: skip
def test_steps_are_repeated_or_abandoned(parts, fingerprints, said, repeated, abandoned):
    steps = make_steps(100)
    numbers = numbers_of([[steps[part]] for part in parts], fingerprints, **said)
    assert (numbers.num_repeated_steps, numbers.num_abandoned_steps) == (repeated, abandoned)
    assert numbers.num_steps == parts[-1].stop


@pytest.fixture
def resumed(inputs_of):
    """A report of a training that waited 0.6 s a step for data up to a resume with a new config."""

    def make(num_steps):
        inputs = inputs_of(stopped_at=300, resumed_at=300, num_steps=num_steps)

        def slowed(timing):
            if timing.steps is None or timing.attempt != 1:
                return timing
            steps = timing.steps.steps.copy()
            for name in ("data_wait_s", "step_s"):
                steps[name] += 0.54
            steps["start_unix_s"] += 0.54 * np.arange(len(steps))
            return replace(timing, steps=replace(timing.steps, steps=steps))

        changed = with_stage(
            inputs,
            "train",
            attempts=lambda a: replace(a, fingerprint=f"f{a.attempt}"),
            timings=slowed,
        )
        intents = tuple(replace(i, fingerprint="f2") for i in inputs.intents)
        return report_from(with_intents(changed, *intents))

    return make


def test_a_wait_for_data_that_a_resume_fixed_is_no_finding(resumed, report_of):
    report = resumed(500)
    (title,) = [f.title for f in report.findings if "waits for data" in f.title]
    assert title.startswith("8")  # percent: as the newest config has it, not the mean of both
    (numbers,) = report.training
    assert (numbers.num_steps, numbers.num_measured) == (500, 490)
    assert notes_with(report, "use only the 195 measured steps under the newest")
    assert not notes_with(report_of(), "newest config and code")


def test_all_steps_are_judged_with_a_note_if_the_newest_config_has_few(resumed):
    report = resumed(315)
    assert any("waits for data" in finding.title for finding in report.findings)
    assert notes_with(report, "only 10 of the 305 measured steps ran under the newest")


# Losses.


def test_the_loss_at_the_end_says_of_how_many_steps_it_is_the_mean(report_of):
    report = report_of(stopped_at=None)
    losses = make_steps(400, num_ranks=2)["loss"]
    numbers = report.training[0]
    assert numbers.num_last_losses == 8
    assert numbers.last_loss.value == pytest.approx(float(losses[-8:].mean()))
    assert numbers.first_loss.value == pytest.approx(float(losses[0]))
    page = render_html(report)
    assert "loss, mean of the last 8 steps" in page
    assert "last loss" not in page
    assert "mean of the last 8 steps" in report.tiles[-1].note
    assert "(mean of the last 8 steps) nats/token" in printed(report, 200)
    assert report_of(num_steps=40, stopped_at=None).tiles[-1].note.endswith("last step")


def test_the_loss_of_levels_is_a_weighted_sum_and_none_of_a_token(run_of):
    paths, rows = run_of()
    with edited(paths.resolved_spec) as spec:
        spec["stages"]["train"]["config"]["levels"] = [{"name": "a"}, {"name": "b"}]
    report = report_on(paths, rows)
    page, told = render_html(report), printed(report, 200)
    assert "steps) nats, weighted sum over levels" in told
    assert page.count("nats, weighted sum over levels") >= 3
    assert "nats/token" not in page + told


# Several ranks.


def test_a_ceiling_counts_in_each_step_the_rank_that_waits_longest_in_it():
    ranks = of_two_ranks()
    for rank, steps in enumerate(ranks):
        steps["step_s"] = 1.0
        steps["data_wait_s"] = np.where(steps["step"] % 2 == rank, 0.6, 0.0)
    numbers = numbers_of([ranks])
    assert numbers.critical_shares["data_wait"] == pytest.approx(0.6)
    assert next(p.share for p in numbers.phases if p.kind == "data_wait") == pytest.approx(0.3)


def test_ranks_that_wait_in_turn_have_a_ceiling_with_an_end():
    """They do not meet in every step: each has its long steps where the other has short ones."""
    ranks = of_two_ranks()
    for rank, steps in enumerate(ranks):
        waits = steps["step"] % 2 == rank
        steps["step_s"] = np.where(waits, 1.0, 0.1)
        steps["data_wait_s"] = np.where(waits, 0.9, 0.0)
    shares = numbers_of([ranks]).critical_shares
    assert shares["data_wait"] == pytest.approx(0.9)
    assert max(shares.values()) <= 1


def test_records_without_the_waits_for_other_ranks_are_not_called_even():
    old = numbers_of([[make_steps(60)] * 2], lacking=frozenset({"rank_wait_s"}))
    assert old.straggler.slowest_over_mean is None
    check = straggler(old)
    assert (check.outcome, "older version" in check.reason) == ("abstained", True)


@pytest.mark.parametrize(("is_apart", "share"), [(True, 0.04), (False, 0.34)])
def test_the_price_of_an_exchange_is_the_wait_of_the_last_rank(is_apart, share):
    """Rank 0 is last for the batch, rank 1 before the update, each by 0.3 s of 1 s.

    Each exchange takes 0.02 s by itself. Older records have both together, and the rule says so.
    """
    ranks = of_two_ranks()
    for steps, first_s in zip(ranks, (0.02, 0.32), strict=True):
        steps["step_s"], steps["rank_wait_s"] = 1.0, 0.34
        steps["rank_wait_data_s"] = first_s if is_apart else math.nan
    numbers = numbers_of([ranks])
    assert (numbers.meeting_share, numbers.meetings_apart) == (pytest.approx(share), is_apart)
    found = meetings(numbers)
    if is_apart:
        assert found.outcome == "clear"
    else:
        old = "medium: these records, of an older version, combine"
        assert found.confidence.startswith(old)


def attempts_with(*num_ranks):
    """Attempts with so many ranks each, which make a hundred steps one after the other."""
    return attempts_of(
        *(
            rank_timing(
                number + 1,
                rank,
                make_steps(100, first=100 * number, rank=rank, num_ranks=max(num_ranks)),
                training="t",
                num_ranks=ranks,
            )
            for number, ranks in enumerate(num_ranks)
            for rank in range(ranks)
        )
    )


@pytest.mark.parametrize(
    ("num_ranks", "told"), [((2, 2, 1, 4), (2, 1, 4)), ((2, 2), (2,))], ids=["changed", "stayed"]
)
def test_rank_counts_are_in_the_order_of_the_attempts_without_repeats(num_ranks, told):
    found = ranks_of(attempts_with(*num_ranks))
    assert found["rank_counts"] == told
    assert bool(found["rates_by_ranks"]) == (len(told) > 1)


def test_each_number_of_ranks_has_rates_of_its_own_steps():
    attempts = attempts_with(2, 1, 2)
    by_ranks = {found.num_ranks: found for found in ranks_of(attempts)["rates_by_ranks"]}
    assert {num: found.num_steps for num, found in by_ranks.items()} == {2: 190, 1: 95}
    assert by_ranks[1].tokens_per_s == rates(attempts[1:2])["tokens_per_s"]
    overall = rates(attempts)["tokens_per_s"].value
    assert by_ranks[1].tokens_per_s.value < overall < by_ranks[2].tokens_per_s.value


def test_every_form_of_the_report_says_that_ranks_changed(report_of):
    report = report_of(num_steps=40, stopped_at=None)
    training = replace(report.training[0], **ranks_of(attempts_with(2, 1)))
    tiles = make_tiles(report.header, report.timeline, "", (training,), ())
    report = replace(report, training=(training,), tiles=tiles)
    assert tiles[2].note == "real tokens, mean over 2, then 1 ranks"
    for form in (printed(report, 120), render_html(report)):
        assert "on 2, then 1 ranks" in form
        assert "over 95 steps" in form
    values = report_to_json(report)["training"][0]
    assert values["rank_counts"] == [2, 1]
    assert [found["num_ranks"] for found in values["rates_by_ranks"]] == [2, 1]
