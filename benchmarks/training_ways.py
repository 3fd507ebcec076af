"""Runs training methods one after the other in one process.

    python -m benchmarks.training_ways ASKED_JSON FOUND_JSON

`ASKED_JSON` is a list of (method, job) pairs; `FOUND_JSON` has the result of each. A job that does
not fit into GPU memory gets null, and so do all after it, because an out-of-memory error may leave
memory occupied.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks.training_job import StepEnd, TrainingJob, TrainingResult
from slurm_jobs.base.errors import StageConfigError


def train_ours(job: TrainingJob, kind: str) -> list[StepEnd]:
    """Run the `train` stage; its own records have the times."""
    from benchmarks.training_stage import run_train

    with tempfile.TemporaryDirectory(dir=job.folder) as root:
        steps = run_train(job, kind, Path(root))
    return [
        StepEnd(
            unix_s=float(step["start_unix_s"] + step["step_s"]),
            num_tokens=int(step["num_tokens"]),
            model_flops=float(step["model_flops"]),
            loss=float(step["loss"]),
            grad_norm=float(step["grad_norm"]),
        )
        for step in steps
    ]


def train_trainer(job: TrainingJob, *, ready: bool) -> list[StepEnd]:
    """Train with transformers' Trainer."""
    from benchmarks import training_peers

    return training_peers.train_trainer(job, ready=ready)


def train_trl(job: TrainingJob) -> list[StepEnd]:
    """Train with TRL's SFTTrainer."""
    from benchmarks import training_peers

    return training_peers.train_trl(job)


WAYS: Mapping[str, Callable[[TrainingJob], list[StepEnd]]] = {
    "ours": lambda job: train_ours(job, "packed"),
    "ours unpacked": lambda job: train_ours(job, "shuffled"),
    "Trainer": lambda job: train_trainer(job, ready=False),
    "Trainer, ready": lambda job: train_trainer(job, ready=True),
    "SFTTrainer": train_trl,
}


def train(way: str, job: TrainingJob) -> TrainingResult | None:
    """Train; return None if the GPU has too little memory."""
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        steps = WAYS[way](job)
    except torch.OutOfMemoryError:
        return None
    except StageConfigError as error:  # the stage turns it into its own error with a remedy
        if not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
        return None
    memory = torch.cuda.max_memory_allocated() if is_gpu else None
    return TrainingResult(steps=tuple(steps), memory_peak_bytes=memory)


def main() -> None:
    """Run all jobs and write their results."""
    asked_file, found_file = map(Path, sys.argv[1:])
    answers: list[TrainingResult | None] = []
    for way, values in json.loads(asked_file.read_text()):
        job = TrainingJob(**{**values, "folder": Path(values["folder"])})
        fits = None not in answers
        answers.append(train(way, job) if fits else None)
    results = [None if answer is None else dataclasses.asdict(answer) for answer in answers]
    found_file.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
