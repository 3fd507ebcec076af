"""Suitability of runs as a base for scaling. PURE.

A slow base makes every other point look good. The motivating case: 2 V100 at 12.94 of 16 GB, and
8 of them 5.8 times as fast (145 % efficiency). With activation checkpointing, at 9.93 GB, they
were 4.07 times as fast (102 %).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.report.comparison.comparison_model import RunMeasure

MEMORY_SHARE = 0.80
"""Peak share of a GPU's memory from which on it is under pressure. It was 81 % in the case above;
PyTorch's profiler warns from 90 %."""
SLOW_START = 0.80
"""Speed of the first tenth of a run, over the median of the others. A lower one suggests
compilation, kernel tuning or a cold cache. Own choice."""
MOST_EFFICIENCY = 1.05
"""Above it, the base was slowed down: caches give at most a few percent. Own choice."""
HELD_SHARE = 0.25
"""Smallest reported share of the requested cores that other processes keep busy. Own choice."""


def problems(runs: Sequence[RunMeasure], others: Sequence[RunMeasure]) -> tuple[str, ...]:
    """Return why runs are a bad base to compare others with; empty if no reason is known.

    Args:
        runs: on the same number of ranks.
        others: runs of the same series on other numbers.
    """
    lines = [line for run in runs for line in _problems_of(run)]
    for what, kinds, usual in (
        ("cards", {r.cards for r in runs}, {r.cards for r in others}),
        ("processors", {r.cpus for r in runs}, {r.cpus for r in others}),
    ):
        known, known_others = kinds - {()}, usual - {()}
        if known and known_others and not known <= known_others:
            lines.append(
                f"different {what} from the rest: {kinds_text(known)}, "
                f"not {kinds_text(known_others)}"
            )
    return tuple(dict.fromkeys(lines))


def _problems_of(run: RunMeasure) -> Iterator[str]:
    if run.num_allocator_retries:
        yield f"memory pressure: {run.num_allocator_retries:,} x allocator retry ({run.run_id})"
    capacity = run.memory_capacity_bytes
    if capacity and run.memory_peak_bytes >= MEMORY_SHARE * capacity:
        share = units.percent(run.memory_peak_bytes / capacity)
        yield (
            f"memory pressure: {units.num_bytes(run.memory_peak_bytes)} of "
            f"{units.num_bytes(capacity)} at the peak, {share} ({run.run_id})"
        )
    start = run.start_share
    if run.token_stretches:
        start = run.token_stretches[0] / statistics.median(run.token_stretches[1:])
    if start is not None and start < SLOW_START:
        yield (
            f"its first tenth ran at {units.percent(start)} of the speed of the rest, as if "
            f"it compiled then ({run.run_id}); leave out more steps with --warmup-steps"
        )
    if run.share_held is not None and run.share_held >= HELD_SHARE:
        share = units.percent(run.share_held)
        yield f"other processes kept {share} of its requested cores busy ({run.run_id})"


def memory_not_judged(runs: Sequence[RunMeasure]) -> str:
    """Return the runs whose memory pressure is unknown; empty if there are none.

    On CPUs there is no memory of a GPU to fill.
    """
    silent = [r.run_id for r in runs if r.memory_capacity_bytes is None and r.device != "cpu"]
    if not silent:
        return ""
    return f"memory not judged: no reading shows how much the GPUs had ({', '.join(silent)})"


def kinds_text(kinds: set[tuple[str, ...]]) -> str:
    """Return the kinds in a fixed order, each with its parts."""
    return "; ".join(sorted(", ".join(kind) for kind in kinds))
