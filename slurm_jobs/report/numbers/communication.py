"""Communication in the profiled steps of a training. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report.inputs.records import ProfileTable
from slurm_jobs.report.model.training import ExposedCommunication


def exposed_communication(profiles: Sequence[ProfileTable]) -> ExposedCommunication | None:
    """Return that of the newest attempt that has a profile."""
    newest = max((p.attempt for p in profiles), default=0)
    told = [
        ExposedCommunication(
            rank=p.rank,
            attempt=p.attempt,
            num_steps=p.table.num_steps,
            share=p.table.exposed_communication_s / p.table.wall_s,
            communication_share=(p.table.communication_s or 0.0) / p.table.wall_s,
        )
        for p in profiles
        if p.attempt == newest
        and p.table.exposed_communication_s is not None
        and p.table.wall_s > 0
    ]
    return max(told, key=lambda one: one.share, default=None)
