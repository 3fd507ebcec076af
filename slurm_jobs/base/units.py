"""Numbers and units in words, the same in every renderer. PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.quantities import Quantity

NOT_KNOWN = "n/a"
"""Shown for a quantity without a value; the reason is next to it or in the notes."""
_LEFT_OUT = "..."
"""Replaces the middle of a name that is too long."""
_MOST_RANK_COUNTS = 4
"""Maximum numbers of ranks in a list."""


def stage_name(name: str, *, is_former: bool) -> str:
    """Return a stage's name, marked if only earlier plans have it."""
    return f"{name} (former)" if is_former else name


def attempt_name(stage: str, slice_index: int, attempt: int, job_id: str | None) -> str:
    """Return `train, slice 0, attempt 1, job 12`; attempt 0 has no record."""
    which = f"attempt {attempt}" if attempt else "no attempt record"
    return f"{stage}, slice {slice_index}, {which}, job {job_id}"


_MAX_NUMBERS_CHARS = 60


def slices_text(indices: Sequence[int]) -> str:
    """Return `slice 2` or `slices 2,5-7`; of a long list the beginning and the number of slices."""
    numbers = ranges_text(indices)
    if len(numbers) > _MAX_NUMBERS_CHARS:
        first, _, _ = numbers[:_MAX_NUMBERS_CHARS].rpartition(",")
        numbers = f"{first},... ({len(indices)} slices)"
    return f"slice{'s' if len(indices) > 1 else ''} {numbers}"


def seconds(value: float) -> str:
    """Return `0 s`, `12.0 us`, `340 ms`, `12.3 s`, `4 min 05 s`, `2 h 07 min`, `3 d 04 h`."""
    if value < 0:
        return "-" + seconds(-value)
    if value < 99.95:
        if value < 5e-7:
            return "0 s"
        if value < 0.0009995:
            return f"{significant(value * 1e6)} us"
        if value < 0.9995:
            return f"{significant(value * 1000)} ms"
        return f"{significant(value)} s"
    total = round(value)
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    if total < 48 * 3600:
        return f"{total // 3600} h {total % 3600 // 60:02d} min"
    return f"{total // 86400} d {total % 86400 // 3600:02d} h"


def significant(value: float) -> str:
    """Return three significant digits without an exponent: `0.0123`, `4.56`, `789`, `12,300`."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = float(f"{value:.3g}")
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, min(digits, 6))}f}"


def percent(fraction: float) -> str:
    """Return `0 %`, `0.4 %`, `12 %`."""
    value = fraction * 100
    if value != 0 and abs(value) < 0.05:
        return "<0.1 %" if value > 0 else ">-0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def num_bytes(value: float) -> str:
    """Return memory in units of 1,024, as Slurm and `mem_gb` count it: `4.20 GiB`."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{significant(value / 1024**power)} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """Return `1,234`; from ten million on `12.3 M`, from ten billion on `12.3 G`."""
    if value >= 1e10:
        return f"{significant(value / 1e9)} G"
    if value >= 1e7:
        return f"{significant(value / 1e6)} M"
    return f"{value:,.0f}"


def number_of(thing: str, value: int) -> str:
    """Return `1 attempt`, `1,234 attempts`."""
    return f"{value:,} {thing}" + ("" if value == 1 else "s")


def shortened(text: str, most: int) -> str:
    """Shorten a name to `most` characters, keeping both ends: `captions-...-5b9e`."""
    if len(text) <= most:
        return text
    num_ends = most - len(_LEFT_OUT)
    return f"{text[: num_ends - num_ends // 2]}{_LEFT_OUT}{text[len(text) - num_ends // 2 :]}"


def ranks(counts: Sequence[int]) -> str:
    """Return `1 rank`, `2 ranks`; `2, then 1 ranks` if later attempts had others."""
    if len(counts) == 1:
        return number_of("rank", counts[0])
    if len(counts) > _MOST_RANK_COUNTS:
        return f"{min(counts):,} to {max(counts):,} ranks"
    return ", then ".join(f"{count:,}" for count in counts) + " ranks"


def last_steps(num_steps: int) -> str:
    """Return the steps of the loss at the end: `last step`, `mean of the last 8 steps`."""
    return "last step" if num_steps <= 1 else f"mean of the last {num_steps:,} steps"


def of_slices(num_reported: int, num_slices: int) -> str:
    """Return the slices of a count if not all reported: `of 1 of 2 slices`; else empty."""
    if num_reported == num_slices:
        return ""
    return f"of {num_reported:,} of {number_of('slice', num_slices)}"


def with_reason(given: Quantity) -> str:
    """Return a quantity, with the reason if it is missing or a lower bound."""
    reason = given.missing or given.at_least
    return f"{quantity(given)} ({reason})" if reason else quantity(given)


def quantity(given: Quantity) -> str:
    """Return a quantity with its unit, or that it is unknown; a lower bound is marked."""
    if given.value is None:
        return NOT_KNOWN
    if given.at_least:
        return f"at least {quantity(replace(given, at_least=''))}"
    if given.unit in _WRITERS:
        return _WRITERS[given.unit](given.value)
    if given.unit in {"tokens", "samples"}:
        return f"{count(given.value)} {given.unit}"
    return f"{significant(given.value)} {given.unit}"


_WRITERS: Mapping[str, Callable[[float], str]] = {
    "s": seconds,
    "fraction": percent,
    "bytes": num_bytes,
    "count": count,
}


def stored_image(means: Mapping[str, float]) -> str:
    """Return the cost of a stored image: `86.9 KiB, read in 0.8 ms, 40.9 dB`."""
    loss = f"{means['psnr_db']:.1f} dB" if "psnr_db" in means else "lossless"
    return f"{num_bytes(means['bytes'])}, read in {means['decode_ms']:.2g} ms, {loss}"


def moment(unix_s: float) -> str:
    """Return date and time in UTC; seconds if a broken clock is outside the calendar."""
    try:
        time = datetime.fromtimestamp(unix_s, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{unix_s:.3g} s after 1970"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


def speed_without(share: float) -> str:
    """Return the largest gain if `share` of the time were gone; no number if that is all of it."""
    if share >= 1:
        return "a gain without a known end, as it takes all of the time"
    return f"{times(1 / (1 - share))} the speed"


def times(factor: float) -> str:
    """Return `at most 1.9 times`, rounded up so that it stays a ceiling."""
    if not math.isfinite(factor):
        return "no finite ceiling"
    return f"at most {math.ceil(factor * 100 - 1e-9) / 100:.2f} times"


def evaluation(numbers: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the numbers of an evaluation, each formatted by `result`."""
    rows = []
    for name, value in sorted(numbers.items()):
        parent, dot, leaf = name.rpartition(".")
        label = f"{parent}{dot}{leaf.removeprefix('num_')}".replace("_", " ")
        rows.append((label, result(name, value)))
    return rows


def result(name: str, value: float) -> str:
    """Format a number that a stage returned, by its name.

    Counts (`num_...`) and whole numbers are whole; a share that matched is percent; others get
    three digits.
    """
    if "match" in name and not is_count(name) and 0 <= value <= 1:
        return f"{value * 100:.1f} %"
    is_whole = is_count(name) or isinstance(value, int)
    return f"{value:,.0f}" if is_whole else significant(value)


def is_count(name: str) -> bool:
    """Check whether a number is a count, by its name; that may be nested, joined by dots."""
    return name.rpartition(".")[2].startswith("num_")
