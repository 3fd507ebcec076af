"""Measured runs on several numbers of ranks."""

from __future__ import annotations

from tests.slurm_jobs.report.comparison.measured import measured


def runs(speeds, **values):
    return [
        measured(f"r{num}", num_ranks=num, tokens_per_s=speed, **values)
        for num, speed in speeds.items()
    ]


def with_batches(*given):
    """Runs of so many ranks, tokens a second, and samples a step."""
    return [
        measured(f"r{num}", num_ranks=num, tokens_per_s=speed, samples_per_step=float(batch))
        for num, speed, batch in given
    ]
