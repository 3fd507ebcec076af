"""Ways of training one after the other, in a process of their own.

    python -m benchmarks.training_ways ASKED_JSON FOUND_JSON

`ASKED_JSON` is a list of pairs, a way and a job; `FOUND_JSON` has what came of each. What does not
fit into the memory of the GPU is null there, and so is what was asked for after it: nobody knows
what that left behind.
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

from benchmarks.training_job import Found, StepEnd, TrainingJob
from slurm_jobs.shared.errors import StageConfigError


def train_ours(job: TrainingJob, kind: str) -> list[StepEnd]:
    """The `train` stage; its own records say when."""
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
    """Transformers' Trainer."""
    from benchmarks import training_peers

    return training_peers.train_trainer(job, ready=ready)


def train_trl(job: TrainingJob) -> list[StepEnd]:
    """TRL's SFTTrainer."""
    from benchmarks import training_peers

    return training_peers.train_trl(job)


WAYS: Mapping[str, Callable[[TrainingJob], list[StepEnd]]] = {
    "ours": lambda job: train_ours(job, "packed"),
    "ours unpacked": lambda job: train_ours(job, "shuffled"),
    "Trainer": lambda job: train_trainer(job, ready=False),
    "Trainer, ready": lambda job: train_trainer(job, ready=True),
    "SFTTrainer": train_trl,
}


def train(way: str, job: TrainingJob) -> Found | None:
    """Train; None if the GPU has not enough memory."""
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        steps = WAYS[way](job)
    except torch.OutOfMemoryError:
        return None
    except StageConfigError as error:  # the stage tells it with its remedy
        if not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
        return None
    memory = torch.cuda.max_memory_allocated() if is_gpu else None
    return Found(steps=tuple(steps), memory_peak_bytes=memory)


def main() -> None:
    """Train, and write when each step ended."""
    asked_file, found_file = map(Path, sys.argv[1:])
    answers: list[Found | None] = []
    for way, values in json.loads(asked_file.read_text()):
        job = TrainingJob(**{**values, "folder": Path(values["folder"])})
        fits = None not in answers
        answers.append(train(way, job) if fits else None)
    told = [None if answer is None else dataclasses.asdict(answer) for answer in answers]
    found_file.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
