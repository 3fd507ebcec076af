"""Rates between two moments of a training, and the time that is left."""

import pytest

from pipeline.train.reporting.training_speed import WorkDone, rates_between, time_left

BEGUN = WorkDone(at_s=100.0, num_steps=4, num_tokens=1_000, data_wait_s=1.0, model_flops=1e9)
NOW = WorkDone(at_s=110.0, num_steps=9, num_tokens=3_000, data_wait_s=2.5, model_flops=5e9)


def test_rates_cover_all_work_between_the_two_moments():
    rates = rates_between(BEGUN, NOW, num_ranks=4, peak_flops_per_s=1e9)
    assert (rates.step_s, rates.tokens_per_s) == (2.0, 4 * 200)
    assert (rates.data_wait_share, rates.mfu) == pytest.approx((0.15, 0.4))
    unknown = rates_between(BEGUN, NOW, num_ranks=4, peak_flops_per_s=None)
    assert unknown.mfu is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (59.4 * 60, "59 min"),
        (59.6 * 60, "1 h 00 min"),
        (3 * 3600 + 299, "3 h 05 min"),
        (47.4 * 3600, "47 h 24 min"),
        (52 * 3600, "2 d 4 h"),
    ],
)
def test_time_left_is_shown_in_rounded_units(seconds, text):
    assert time_left(seconds) == text
