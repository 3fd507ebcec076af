"""Durations as Slurm writes them."""

import pytest

from slurm_jobs.spec.durations import parse_duration_s, parse_minutes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1-00:00:00", 1440),
        ("2-12", 3600),
        ("12:30:00", 750),
        ("30:30", 30.5),
        ("90", 90),
        ("UNLIMITED", None),
        ("", None),
        ("N/A", None),
    ],
)
def test_time_limits_are_minutes(text: str, minutes: float | None) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("02:03:04", 7384),
        ("03:04.567", 184.567),
        ("00:00:00", 0),
        ("", None),
        ("INVALID", None),
    ],
)
def test_durations_are_read_in_every_form(text: str, seconds: float | None) -> None:
    assert parse_duration_s(text) == seconds
