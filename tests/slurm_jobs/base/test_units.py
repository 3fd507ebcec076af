"""Numbers and units in words."""

from __future__ import annotations

import pytest

from slurm_jobs.base import units
from slurm_jobs.base.quantities import known, missing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (2e-4, "200 us"),
        (0.0571, "57.1 ms"),
        (0.9999, "1.00 s"),
        (59.97, "60.0 s"),
        (99.96, "1 min 40 s"),
        (245.2, "4 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (273_600, "3 d 04 h"),
        (-3, "-3.00 s"),
    ],
)
def test_seconds_are_written_in_the_unit_that_fits(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        # A ceiling is rounded up, so that it stays one.
        (units.times, 1.231, "at most 1.24 times"),
        (units.times, 1.25, "at most 1.25 times"),
        (units.times, float("inf"), "no finite ceiling"),
        (units.speed_without, 0.5, "at most 2.00 times the speed"),
        (
            units.speed_without,
            1.0,
            "a gain without a known end, as it takes all of the time",
        ),
        # A small share is not nothing.
        (units.percent, 0.0001, "<0.1 %"),
        (units.percent, 0, "0 %"),
        (units.quantity, known(8 * 2**30, "bytes"), "8.00 GiB"),  # what mem_gb: 8 asks for
        (units.quantity, known(0.12, "fraction"), "12 %"),
        (units.quantity, known(12_345, "tokens"), "12,345 tokens"),
        (units.quantity, known(1.5, "steps/s"), "1.50 steps/s"),
        (units.quantity, missing("s", "nobody looked"), units.NOT_KNOWN),
        (units.ranks, (1,), "1 rank"),
        (units.ranks, (2, 1), "2, then 1 ranks"),
        (units.ranks, (8, 4, 2, 1, 16), "1 to 16 ranks"),
        (units.moment, 0, "1970-01-01 00:00:00 UTC"),
        (units.moment, 1e12, "1e+12 s after 1970"),  # no calendar has it
    ],
)
def test_values_are_written_with_their_unit(write, value, text):
    assert write(value) == text


@pytest.mark.parametrize(
    ("word", "number", "text"),
    [("attempt", 1, "1 attempt"), ("attempt", 0, "0 attempts"), ("step", 1234, "1,234 steps")],
)
def test_one_of_a_thing_is_no_plural(word, number, text):
    assert units.number_of(word, number) == text


def test_only_counts_and_whole_numbers_of_an_evaluation_are_written_whole():
    numbers = {"accuracy": 0.873, "loss": 0.41, "bleu": 31.7, "exact_match": 0.9875, "epochs": 3}
    numbers |= {"num_samples": 1240.0, "val.num_matches": 7.0, "match_length": 12.5}
    assert dict(units.evaluation(numbers)) == {
        "accuracy": "0.873",
        "loss": "0.410",
        "bleu": "31.7",
        "exact match": "98.8 %",
        "epochs": "3",
        "samples": "1,240",
        "val.matches": "7",
        "match length": "12.5",
    }
