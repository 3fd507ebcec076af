"""Moments that a user types: how long ago (`7d`), a day, or a day and time."""

from __future__ import annotations

import argparse
import time
from datetime import datetime

from slurm_jobs.cli.ages import age_s


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
