"""A `TaskContext` for tests that call a stage's function themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_jobs.formats.records.task_context import TaskContext


def make_context(stage: str, root: Path, **changes: Any) -> TaskContext:
    """The only rank of the first attempt of a stage's only slice; makes its folders in `root`."""
    values: dict[str, Any] = {
        "run_dir": root,
        "run_id": "test",
        "stage": stage,
        "slice_index": 0,
        "num_slices": 1,
        "attempt": 1,
        "rank": 0,
        "num_ranks": 1,
        "local_rank": 0,
        "num_local_ranks": 1,
        "node_rank": 0,
        "num_nodes": 1,
        "node_name": "node-0",
        "main_addr": "127.0.0.1",
        "main_port": 0,
        "output_dir": root / stage,
        "timing_dir": root / "timing",
        "task_dir": root / "task",
        "node_local_dir": root / "local",
        "parents": (),
        "config": {},
        "spec_dir": root,
        "limit": None,
        "deadline_unix_s": None,
    }
    context = TaskContext(**{**values, **changes})
    for folder in (
        context.output_dir,
        context.timing_dir,
        context.task_dir,
        context.node_local_dir,
    ):
        folder.mkdir(parents=True, exist_ok=True)
    return context
