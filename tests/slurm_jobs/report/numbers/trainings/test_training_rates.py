"""Rates of a training over wall time, by number of ranks, from whole records only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.numbers.headline import make_tiles
from slurm_jobs.report.numbers.trainings.training_rates import ranks_of, rates
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import attempts_of, make_steps, printed, rank_timing
from tests.slurm_jobs.report.numbers.trainings.made_trainings import numbers_of


def test_rates_are_over_wall_time_waits_included(report_of):
    numbers = report_of(stopped_at=None, data_wait_s=0.3).training[0]
    mean_step_s = numbers.ranks[0].step_mean_s
    assert numbers.steps_per_s.value == pytest.approx(1 / mean_step_s, rel=1e-3)
    assert numbers.samples_per_s.value == pytest.approx(64 / mean_step_s, rel=1e-3)


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
