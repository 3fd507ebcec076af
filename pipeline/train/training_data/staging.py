"""Staging in on every rank of a training: nodes take different times, then all continue.

And its benefit: how much was read from the nodes' own disks and how much from the shared file
system, and how long that took.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.data.shard_reading.shard_files import ReadCounts
from pipeline.stage_in.stage import Staged, stage_in
from pipeline.timing.span_log import SpanLog
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.formats.configs.training_parts import StagingConfig
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)


def stage_together(
    dataset_dir: Path, context: TaskContext, config: StagingConfig, ranks: Ranks, spans: SpanLog
) -> Staged:
    """Stage in on every rank; if one was asked to stop meanwhile, all stop.

    The first rank of each node copies; the others wait for it if training waits for the copy.

    Raises:
        StageError: as in `stage_in`, on the affected rank.
        StageStoppedError: a rank was asked to stop while it staged in.
    """
    staged = None
    with spans.span("stage_in") as notes:
        with contextlib.suppress(StageStoppedError):
            copies = context.local_rank == 0
            staged = stage_in(dataset_dir, context.node_local_dir, config, copies=copies)
            notes |= {"num_bytes": staged.num_bytes, "copied": staged.copied}
        # One node may have its copy already, while another copies for an hour.
        ranks.meet(f"stage_in {dataset_dir}", speaks=context.local_rank == 0)
        (num_stopped,) = ranks.sums([float(staged is None)])
    if num_stopped or staged is None:
        if staged is not None:
            staged.close()
        message = "asked to stop while the data set was staged in"
        raise StageStoppedError(message)
    return staged


def describe_reading(
    reads: Sequence[tuple[Staged, ReadCounts]], config: StagingConfig, ranks: Ranks
) -> dict[str, Any]:
    """Return the bytes and time of reading by place, over all ranks and data sets.

    A collective: every rank must call it. The first rank logs it.
    """
    local_bytes, local_s, shared_bytes, shared_s, num_damaged = ranks.sums(
        [
            float(sum(getattr(counts, field.name) for _, counts in reads))
            for field in dataclasses.fields(ReadCounts)
        ]
    )
    if ranks.rank == 0:
        log.info("%s", cost_text(local_bytes, local_s, shared_bytes, shared_s))
    return {
        "mode": config.mode,
        "staged_bytes": sum(staged.num_local_bytes for staged, _ in reads),
        "reason": "; ".join(staged.reason for staged, _ in reads if staged.reason) or None,
        "local_read_bytes": int(local_bytes),
        "local_read_s": local_s,
        "shared_read_bytes": int(shared_bytes),
        "shared_read_s": shared_s,
        "num_damaged_shards": int(num_damaged),
    }


def cost_text(local_bytes: float, local_s: float, shared_bytes: float, shared_s: float) -> str:
    """Describe the extra cost of reading from the shared file system.

    Bytes and seconds of loader threads, reading and checksums, are those of all ranks.
    """
    read = [
        f"{num_bytes / 1e9:.2f} GB from {place} in {duration_s:.1f} s of loader threads"
        for num_bytes, duration_s, place in (
            (local_bytes, local_s, "the nodes' own disks"),
            (shared_bytes, shared_s, "the shared file system"),
        )
        if num_bytes
    ]
    text = f"samples read: {', '.join(read) or 'none'}"
    if local_bytes and shared_bytes:
        more_s = shared_s - shared_bytes * local_s / local_bytes
        text += f"; the shared file system cost {more_s:.1f} s more than the nodes' own disks would"
    return text
