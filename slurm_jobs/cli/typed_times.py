"""Times that a user types: an age (`7d`), a day, or a day and time."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime


def moment_unix_s(text: str) -> float:
    """Parse `7d`, `2026-11-01` or `2026-11-01T14:30`, in this machine's zone, for argparse."""
    try:
        return time.time() - age_s(text)
    except argparse.ArgumentTypeError:
        pass
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        message = f"{text}: give an age, such as 7d or 12h, or a day, such as 2026-11-01"
        raise argparse.ArgumentTypeError(message) from error


_UNITS_S = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def age_s(text: str) -> float:
    """Parse a number and its unit into seconds, for argparse."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(min|h|d|w)", text.strip())
    if match is None:
        message = f"{text}: give a number and min, h, d or w, such as 30d"
        raise argparse.ArgumentTypeError(message)
    return float(match[1]) * _UNITS_S[match[2]]
