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
    records = _of_rank(attempts, worst)[-1:]
    known_steps = [np.isfinite(r["loader_s"]) & np.isfinite(r["loader_cpu_s"]) for r in records]
    num_known = sum(int(is_known.sum()) for is_known in known_steps)
    if not num_known:
        return None

    def mean(name: str) -> float:
        sums = (
            np.nan_to_num(r[name][is_known]).sum(dtype=np.float64)
            for r, is_known in zip(records, known_steps, strict=True)
        )
        return float(sum(sums)) / num_known

    return LoaderLoad(
        rank=worst.rank,
        node=worst.node,
        num_threads=num_threads(stage.config),
        work_s=mean("loader_s"),
        cpu_s=mean("loader_cpu_s"),
        core_wait_s=mean("loader_core_wait_s")
        if _are_known("loader_core_wait_s", records, known_steps)
        else None,
        step_s=mean("step_s"),
        data_wait_s=mean("data_wait_s"),
        read_blocked_s=mean("loader_read_blocked_s")
        if _are_known("loader_read_blocked_s", records, known_steps)
        else None,
    )


def _of_rank(attempts: Sequence[AttemptSteps], rank: RankNumbers) -> list[Any]:
    """Return measured records of a rank on a node, attempt by attempt."""
    return [
        attempt.measured(index)
        for attempt in attempts
        for index, timing in enumerate(attempt.ranks)
        if timing.rank == rank.rank
        and timing.steps is not None
        and str(timing.steps.metadata.get("node_name", "")) == rank.node
    ]


def _are_known(name: str, records: Sequence[Any], known_steps: Sequence[np.ndarray]) -> bool:
    return all(
        bool(np.isfinite(r[name][is_known]).all())
        for r, is_known in zip(records, known_steps, strict=True)
    )


def num_threads(config: Any) -> int | None:
    """Return the loader threads of each rank; None for streamed shards, where one thread reads."""
    num = config.get("num_loader_threads")
    return None if num is None or config.get("reader") == "webdataset" else int(num)
