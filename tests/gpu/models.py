"""Tiny models of every kind, their data sets, and trainings of them, for the cases."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context
from tests.gpu.work import NotPossibleError, Work
from tests.pipeline.train.tiny_runs import tiny_config


@dataclasses.dataclass(kw_only=True)
class Trained:
    """What came of a training."""

    context: TaskContext
    steps: np.ndarray
    """Step records of rank 0."""
    result: Mapping[str, Any]

    @property
    def losses(self) -> list[float]:
        """Of each step."""
        return [float(loss) for loss in self.steps["loss"]]

    @property
    def weights(self) -> str:
        """SHA-256 of the exported weights."""
        digest = hashlib.sha256()
        for path in sorted(self.context.output_dir.glob("*/*.safetensors")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


def open_tiny(kind: str, folder: Path) -> Any:
    """Write a tiny model and its data set, and open both: a `Kind` of the model tests.

    Raises:
        NotPossibleError: this version of transformers cannot make it.
    """
    import pytest

    from tests.pipeline.models.conftest import open_kind
    from tests.pipeline.models.tiny import write_dataset, write_tiny

    place = folder / kind
    place.mkdir(parents=True, exist_ok=True)
    model_dir, said = place / "model", place / "dataset_dir"
    try:
        with (place / "lock").open("w") as lock:  # cases may run at the same time
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not said.exists():
                write_tiny(kind, model_dir)
                said.write_text(str(write_dataset(kind, place)))
    except pytest.skip.Exception as error:
        raise NotPossibleError(str(error)) from error
    return open_kind(kind, Path(said.read_text()), model_dir)


def held_out_rows(kind: Any) -> Path:
    """Return the manifest that the data set of a kind was made of."""
    return Path(kind.dataset_dir).parents[1] / "source/rows.jsonl"


def train_config(kind: Any, work: Work, **changes: Any) -> dict[str, Any]:
    """Return the config of a short training on the case's device."""
    ours = {
        "device": work.device,
        "strategy": "single",
        "num_steps": 4,
        "num_lanes": 1,
        "schedule": {"kind": "constant", "warmup_share": 0.0},
        "deterministic": True,
        "collective_timeout_min": 0.5,
    }
    return tiny_config((kind.dataset_dir, kind.model_dir), **{**ours, **changes})


def train(folder: Path, config: Mapping[str, Any], *, attempt: int = 1) -> Trained:
    """Run the `train` stage in this process, as its only rank."""
    from pipeline.train import run
    from pipeline.train.ranks.process_group import leave_ranks

    context = _context(folder, config, attempt)
    try:
        result = run(context.config, context)
    finally:
        leave_ranks()
    return _trained(context, result)


def train_in_process(
    folder: Path, config: Mapping[str, Any], *, attempt: int = 1, kill_at_step: int | None = None
) -> Trained | None:
    """Run the `train` stage in a process of its own; None if it killed itself as it should.

    Raises:
        RuntimeError: it failed.
    """
    context = _context(folder, config, attempt)
    asked, answer = folder / f"context.{attempt}.json", folder / f"result.{attempt}.json"
    asked.write_text(json.dumps([record_to_json(context)]))  # the contexts of one process
    command = [sys.executable, "-m", "tests.gpu.dying_rank", str(asked), str(answer)]
    if kill_at_step is not None:
        command.append(str(kill_at_step))
    code = subprocess.run(command, check=False, env=os.environ.copy()).returncode
    if kill_at_step is not None and code == -signal.SIGKILL:
        return None
    if code != 0 or kill_at_step is not None:
        message = f"the training ended with exit code {code}"
        raise RuntimeError(message)
    return _trained(context, json.loads(answer.read_text()))


def _context(folder: Path, config: Mapping[str, Any], attempt: int) -> TaskContext:
    return make_context(
        "train",
        folder,
        attempt=attempt,
        main_port=free_port(),
        timing_dir=folder / "timing" / str(attempt),
        task_dir=folder / "task" / str(attempt),
        config=dict(config),
    )


def _trained(context: TaskContext, result: Mapping[str, Any] | None) -> Trained:
    steps = read_steps(steps_path(context.timing_dir, 0)).steps
    return Trained(context=context, steps=steps, result=result or {})
