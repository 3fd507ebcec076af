"""Ages that a user types: `30d`, `12h`."""

from __future__ import annotations

import argparse
import re

_UNITS_S = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def age_s(text: str) -> float:
    """Parse a number and its unit into seconds, for argparse."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(min|h|d|w)", text.strip())
    if match is None:
        message = f"{text}: give a number and min, h, d or w, such as 30d"
        raise argparse.ArgumentTypeError(message)
    return float(match[1]) * _UNITS_S[match[2]]
