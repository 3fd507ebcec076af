"""Suitability of runs as a base for scaling. PURE.

A slow base makes every other point look good. The motivating case: 2 V100 at 12.94 of 16 GB, and 8
of them 5.8 times as fast (145 % efficiency). With activation checkpointing, at 9.93 GB, they were
4.07 times as fast (102 %).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from slurm_jobs.comparison.model import RunMeasure
from slurm_jobs.report import words

MEMORY_SHARE = 0.80
"""Peak share of a GPU's memory. It was 81 % in the case above; PyTorch's profiler warns from 90 %.
"""
SLOW_START = 0.80
"""Speed of the first tenth of a run, over the median of the others; lower means compiling, kernel
tuning or a cold cache in it. Own choice."""
MOST_EFFICIENCY = 1.05
"""Above it, the base was slowed down: caches give at most a few percent. Own choice."""
HELD_SHARE = 0.25
"""Share of the requested cores held by others from which on it is reported. Own choice."""


def problems(runs: Sequence[RunMeasure], others: Sequence[RunMeasure]) -> tuple[str, ...]:
    """Return the problems of runs on so many ranks as a base for others; empty if none is known.

    Args:
        runs: on the same number of ranks.
        others: runs of the same series on other numbers.
    """
    found = [line for run in runs for line in (*_memory(run), *_start(run), *_held(run))]
    found += _hardware(runs, others)
    return tuple(dict.fromkeys(found))


def _memory(run: RunMeasure) -> Iterator[str]:
    if run.num_allocator_retries:
        yield f"memory pressure: {run.num_allocator_retries:,} x allocator retry ({run.run_id})"
    capacity = run.memory_capacity_bytes
    if capacity and run.memory_peak_bytes >= MEMORY_SHARE * capacity:
        share = words.percent(run.memory_peak_bytes / capacity)
        yield (
            f"memory pressure: {words.num_bytes(run.memory_peak_bytes)} of "
            f"{words.num_bytes(capacity)} at the peak, {share} ({run.run_id})"
        )


def _start(run: RunMeasure) -> Iterator[str]:
    share = run.start_share
    if run.token_stretches:
        share = run.token_stretches[0] / statistics.median(run.token_stretches[1:])
    if share is not None and share < SLOW_START:
        yield (
            f"its first tenth ran at {words.percent(share)} of the speed of the rest, as with "
            f"compiling inside ({run.run_id}); leave more out with --warmup-steps"
        )


def memory_not_judged(runs: Sequence[RunMeasure]) -> str:
    """Return the runs whose memory pressure is unknown; empty if there are none.

    On CPUs there is no memory of a GPU to fill.
    """
    silent = [r.run_id for r in runs if r.memory_capacity_bytes is None and r.device != "cpu"]
    if not silent:
        return ""
    return f"memory not judged: no reading shows how much the GPUs had ({', '.join(silent)})"


def _held(run: RunMeasure) -> Iterator[str]:
    if run.share_held is not None and run.share_held >= HELD_SHARE:
        share = words.percent(run.share_held)
        yield f"processes of others held {share} of the cores that it had asked for ({run.run_id})"


def _hardware(runs: Sequence[RunMeasure], others: Sequence[RunMeasure]) -> Iterator[str]:
    for kind in ("cards", "cpus"):
        own = {getattr(run, kind) for run in runs if getattr(run, kind)}
        usual = {getattr(run, kind) for run in others if getattr(run, kind)}
        if own and usual and not own <= usual:
            what = "cards" if kind == "cards" else "processors"
            yield f"other {what} than the rest: {_listed(own)}, not {_listed(usual)}"


def _listed(kinds: set[tuple[str, ...]]) -> str:
    return "; ".join(sorted(", ".join(kind) for kind in kinds))
