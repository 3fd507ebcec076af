"""Our stages, called as a supervisor calls them, for the benchmark of training."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.common.context import ParentStage, TaskContext
from slurm_jobs.common.timings import read_steps, steps_path

if TYPE_CHECKING:
    from benchmarks.training_ways import TrainingJob


def make_context(stage: str, root: Path, **changes: Any) -> TaskContext:
    """The only rank of the only attempt at a stage, in folders of its own."""
    folders = {
        "output_dir": root / stage,
        "timing_dir": root / "timing" / stage,
        "task_dir": root / "task" / stage,
        "node_local_dir": root / "local",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "run_dir": root,
        "run_id": "benchmark",
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
        "main_port": _free_port(),
        "parents": (),
        "config": {},
        "spec_dir": root,
        "limit": None,
        "deadline_unix_s": None,
    }
    return TaskContext(**{**values, **changes}, **folders)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def make_dataset(folder: Path, max_tokens: int) -> Path:
    """Preprocess and consolidate `source/rows.jsonl`; the data set's folder."""
    from pipeline.consolidate import run as consolidate
    from pipeline.preprocess import run as preprocess

    config = {
        "manifest": str(folder / "source/rows.jsonl"),
        "processor": str(folder / "processor"),
        "max_tokens": max_tokens,
        "image_decoding": "exact",
    }
    context = make_context("preprocess", folder, config=config)
    preprocess(config, context)
    parent = ParentStage(
        stage="preprocess", run="preprocess", output_dir=context.output_dir, num_slices=1
    )
    context = make_context("consolidate", folder, parents=(parent,))
    consolidate({}, context)
    return context.output_dir


def run_train(job: TrainingJob, kind: str) -> Any:
    """Train; the records of all steps."""
    from benchmarks.training_ways import LEARNING_RATE
    from pipeline.training import run

    packed = {"kind": "packed", "max_tokens": job.row_tokens}
    config = {
        "device": job.device,
        "precision": job.precision,
        "strategy": "single",
        "dataset": str(job.folder / "consolidate"),
        "model": {"type": "hugging_face", "path": str(job.folder / "model")},
        "num_steps": job.num_steps,
        "global_batch_size": job.batch_size,
        "num_lanes": 1,
        "batching": packed if kind == "packed" else {"kind": kind},
        "num_microbatches": 1 if kind == "packed" else job.batch_size // 8,
        "optimizer": {"learning_rate": LEARNING_RATE, "weight_decay": 0.0, "grad_clip_norm": 1.0},
        "schedule": {"kind": "constant", "warmup_share": 0.0},
        "checkpoint": {"every_min": None},
    }
    with tempfile.TemporaryDirectory(dir=job.folder) as root:
        context = make_context("train", Path(root), config=config)
        run(config, context)
        return read_steps(steps_path(context.timing_dir, 0)).steps
