"""Activity of the loader's threads on the rank that waits longest for its data. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.load_model import LoaderLoad
from slurm_jobs.report.values.rank_model import RankNumbers


def loader_load(
    stage: StageInputs, attempts: Sequence[AttemptSteps], ranks: Sequence[RankNumbers]
) -> LoaderLoad | None:
    """Return the load of the longest waiting rank on its node; None if not recorded.

    One starved rank holds up all, so only its threads matter. Only its newest attempt counts:
    earlier ones may have had another number of threads.
    """
    worst = max(ranks, key=lambda rank: rank.phases_s["data_wait"], default=None)
    if worst is None:
        return None
    records: Any = None
    for attempt in attempts:
        for index, timing in enumerate(attempt.ranks):
            if (timing.rank, timing.node) == (worst.rank, worst.node):
                records = attempt.measured(index)
    if records is None:
        return None
    is_known = np.isfinite(records["loader_s"]) & np.isfinite(records["loader_cpu_s"])
    if not is_known.any():
        return None

    def mean(name: str) -> float:
        return float(np.nan_to_num(records[name][is_known]).mean(dtype=np.float64))

    def mean_if_known(name: str) -> float | None:
        return mean(name) if np.isfinite(records[name][is_known]).all() else None

    return LoaderLoad(
        rank=worst.rank,
        node=worst.node,
        num_threads=num_threads(stage.config),
        work_s=mean("loader_s"),
        cpu_s=mean("loader_cpu_s"),
        core_wait_s=mean_if_known("loader_core_wait_s"),
        step_s=mean("step_s"),
        data_wait_s=mean("data_wait_s"),
        read_blocked_s=mean_if_known("loader_read_blocked_s"),
    )


def num_threads(config: Any) -> int | None:
    """Return the loader threads of each rank; None for streamed shards, where one thread reads."""
    num = config.get("num_loader_threads")
    return None if num is None or config.get("reader") == "webdataset" else int(num)
