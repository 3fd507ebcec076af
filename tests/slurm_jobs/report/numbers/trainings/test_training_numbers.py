"""Numbers of a training: padding, warm-up, losses, and trainings of few steps or of many."""

from __future__ import annotations

import time

import pytest

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import edited, make_steps, outcomes, printed, report_on
from tests.slurm_jobs.report.numbers.trainings.made_trainings import numbers_of


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
