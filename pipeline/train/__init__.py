"""Built-in stage `train`: trains on staged shards, then exports and evaluates the model."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from slurm_jobs.formats.records.activity import active_progress
from slurm_jobs.formats.records.task_context import TaskContext


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any] | None:
    """Train, export, evaluate; called once on every rank. Rank 0 returns the result.

    Raises:
        StageConfigError: the config cannot run here, or contradicts itself.
        StageStoppedError: a stop was requested; the state is saved, and the next attempt
            continues from it.
        StageError: training failed in a way that a retry may fix.
    """
    with active_progress(context.task_dir, context.rank):
        start_unix_s, start = time.time(), time.perf_counter()
        _leave_out_hints()
        from pipeline.timing.span_log import SpanLog
        from pipeline.train.stage import train
        from slurm_jobs.formats.config import build_config
        from slurm_jobs.formats.configs.train import TrainConfig

        spans, import_s = SpanLog(context.timing_dir, context.rank), time.perf_counter() - start
        spans.add("startup_import", start_unix_s=start_unix_s, duration_s=import_s)
        return train(build_config(TrainConfig, config), context, spans)


def _leave_out_hints() -> None:
    """Suppress bitsandbytes' hints, at import, about faster CPU kernels on a model hub."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
