"""Staging in on every rank of a training: each node takes its own time, then all go on together."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pipeline.stage_in import StageInResult, stage_in
from pipeline.timing import SpanLog
from pipeline.training.ranks import Ranks
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageStoppedError


def stage_together(
    dataset_dir: Path, context: TaskContext, ranks: Ranks, spans: SpanLog
) -> StageInResult:
    """Stage in on every rank; if one was asked to stop meanwhile, all stop.

    Raises:
        StageError: as `stage_in`, on the rank that it happened to.
        StageStoppedError: a rank was asked to stop while it staged in.
    """
    staged = None
    with spans.span("stage_in") as notes:
        with contextlib.suppress(StageStoppedError):
            staged = stage_in(dataset_dir, context.node_local_dir)
            notes |= {"num_bytes": staged.num_bytes, "copied": staged.copied}
        # One node may have its copy already, and another copy for an hour.
        ranks.meet("stage_in", speaks=context.local_rank == 0)
        (num_stopped,) = ranks.sums([float(staged is None)])
    if num_stopped or staged is None:
        message = "asked to stop while the data set was staged in"
        raise StageStoppedError(message)
    return staged
