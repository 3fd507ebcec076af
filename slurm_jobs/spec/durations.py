"""Durations as Slurm writes them: `1-12:00:00`, `30:00`, `90`. PURE."""

from __future__ import annotations

import re

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def parse_minutes(text: str) -> float | None:
    """Parse a time limit of Slurm into minutes; None for any other text, which means no limit.

    Formats: `1-00:00:00`, `1-00`, `12:30:00`, `30:00` and `90` (minutes).
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = (int(group) if group else None for group in match.groups())
    assert first is not None
    if days is not None or third is not None:
        hours, minutes, seconds = first, second or 0, third or 0
    else:
        hours, minutes, seconds = 0, first, second or 0
    return (days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def parse_duration_s(text: str) -> float | None:
    """Parse `1-02:03:04`, `02:03:04` or `03:04.567` into seconds."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
