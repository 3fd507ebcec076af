"""Tables of the studies' pages that are computed, not run."""

from __future__ import annotations

import math

from slurm_jobs.report.comparison.speed_verdict import judge

PREFETCH = ((3059.0, 99.0), (3164.0, 59.0))
"""Tokens/s of the small VLM's two arms on 8 V100: mean and what is taken for the standard deviation
from run to run (hectopascal.github.io, 2026)."""
_NUMS_RUNS = (2, 3, 4, 5, 6, 7, 8, 10)


def arm(mean: float, spread: float, num_runs: int) -> list[float]:
    """Speeds of so many runs, evenly spaced, with this mean and sample standard deviation."""
    steps = [index - (num_runs - 1) / 2 for index in range(num_runs)]
    scale = spread / math.sqrt(sum(step * step for step in steps) / (num_runs - 1))
    return [mean + scale * step for step in steps]


def prefetch_verdicts() -> str:
    """What `compare` says of the two arms, by the number of runs of each."""
    lines = ["| runs of each | ratio, 95 % interval | answer |", "| --- | --- | --- |"]
    for num_runs in _NUMS_RUNS:
        found = judge(*(arm(*figures, num_runs) for figures in PREFETCH))
        more = f", {found.more_runs} more of each might" if found.more_runs else ""
        span = f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"
        lines.append(f"| {num_runs} | {span} | {found.word}{more} |")
    return "\n".join(lines)
