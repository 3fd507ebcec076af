"""Numbers, durations and times in words."""

from __future__ import annotations

import time


def number_text(number: int, word: str) -> str:
    """Return `no shards`, `1 shard`, `1,234 shards`."""
    return f"{f'{number:,}' if number else 'no'} {word}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """Return `47 s`, `3 min 20 s`, `2 h 05 min`, `3 d 02 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def age_text(unix_s: float, now_unix_s: float) -> str:
    """Return how long ago a time was."""
    return f"{duration_text(max(0.0, now_unix_s - unix_s))} ago"


def clock_text(unix_s: float, now_unix_s: float) -> str:
    """Return a time in this machine's zone, with the date if it is not today: `14:32`."""
    moment, now = time.localtime(unix_s), time.localtime(now_unix_s)
    is_today = moment[:3] == now[:3]
    return time.strftime("%H:%M" if is_today else "%a %d %b %H:%M", moment)
