"""The built-in stage `train`: staged shards in, a fine-tuned model and its evaluation out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from slurm_jobs.common.context import TaskContext


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any] | None:
    """Train, export, evaluate; called once on every rank. Rank 0 returns the result.

    Raises:
        StageConfigError: what was asked for cannot run here or does not fit together.
        StageStoppedError: asked to stop; the state is saved, and the next attempt goes on from it.
        StageError: training failed in a way that another attempt may mend.
    """
    start_unix_s, start = time.time(), time.perf_counter()
    _leave_out_hints()
    from pipeline.timing import SpanLog
    from pipeline.training.stage import train
    from slurm_jobs.common.config_values import build_config
    from slurm_jobs.common.stage_config.train import TrainConfig

    spans = SpanLog(context.timing_dir, context.rank)
    spans.add("startup_import", start_unix_s=start_unix_s, duration_s=time.perf_counter() - start)
    return train(build_config(TrainConfig, config), context, spans)


def _leave_out_hints() -> None:
    """Bitsandbytes hints, when it is imported, at quicker CPU kernels that lie on a model hub."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
