"""Training compared with transformers' Trainer and TRL's SFTTrainer.

    python -m benchmarks.training [--quick] [--json FILE]

All use the same model, samples and effective batch. A LLaVA of 3 million random weights trains on
chats of very unequal lengths on the CPU (fp32, all cores), 32 samples per step. The methods take
turns, each in its own process. A rate counts the real tokens of all steps but the first two, from
the end of the second step to the end of the last. Both peers process images and text during
training, as their documentation does for images; ours processes them before. "ready" is the Trainer
with samples processed before and batches of similar lengths. No method saves or exports anything.

The number of samples per microbatch is, for each method, the fastest in a short trial of 8, 16 and
32 (on a GPU, of those that fit); the table shows it. Ours packs rows of 512 tokens, all of a step
at once; on a GPU rows of 4,096, as many at once as `num_microbatches: auto` allows. `--quick` skips
the trial (8 at once); on the CPU it runs the peers in one process, and our methods in another.

Losses and gradient norms of four steps on the same 32 samples show that all methods learn the same.
A wrong update shows in the losses; a wrong scale of gradients, which does not affect AdamW, shows
in the norms. AdamW's settings are the same everywhere. Tokens and operations of each of these steps
must be equal.

On a GPU, the script adds a model of 3.5 billion random weights in bf16 (the sizes of SigLIP-so400m
and Qwen2.5-3B), without activation checkpointing. It shows MFU, peak memory and the cost of
`deterministic`. MFU is the operations of the timed steps (formula of `pipeline.timing.flops`),
divided by their time and the card's peak. Ours come from the step records; a peer's are computed
from the inputs of its model, without padding.

See `benchmarks.recording` for the cost of the recorder, and `benchmarks.checkpointing` for
checkpoints.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import Row, arguments, row, show
from benchmarks.training_data import REAL, TINY, Size, make_processor, write_model, write_rows
from benchmarks.training_job import NUM_WARM, StepEnd, TrainingJob, TrainingResult
from benchmarks.training_rows import (
    ALL_WAYS,
    OURS,
    PACKED,
    PEERS,
    compare_learning,
    compare_speed,
    tokens_per_s,
)

BATCH_SIZE = 32
AT_ONCE = (8, 16, 32)
"""Sizes of a microbatch to try, in samples."""
NUM_TRIED_STEPS = NUM_WARM + 3
NUM_COMPARED = 4
"""Steps whose losses and gradient norms are compared."""


def prepare(folder: Path, size: Size, num_rows: int) -> Path:
    """Write the data set, processor and model that all methods use."""
    from benchmarks.training_stage import make_dataset

    write_rows(folder / "source", num_rows, size)
    processor = make_processor(size)
    processor.save_pretrained(folder / "processor")
    write_model(folder / "model", size, processor.tokenizer)
    make_dataset(folder, max_tokens=size.num_image_tokens + 512)
    return folder


def train(requests: Sequence[tuple[str, TrainingJob]]) -> list[TrainingResult | None]:
    """Run `benchmarks.training_ways` in one new process and return its results."""
    with tempfile.TemporaryDirectory() as scratch:
        asked_file, found_file = Path(scratch) / "asked.json", Path(scratch) / "found.json"
        values = [
            (way, {**dataclasses.asdict(job), "folder": str(job.folder)}) for way, job in requests
        ]
        asked_file.write_text(json.dumps(values))
        argv = [sys.executable, "-m", "benchmarks.training_ways", str(asked_file), str(found_file)]
        done = subprocess.run(
            argv, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"{[way for way, _ in requests]} failed: {done.stderr[-2000:]}"
            raise RuntimeError(message)
        return [
            None if values is None else _read(values)
            for values in json.loads(found_file.read_text())
        ]


def _read(values: Mapping[str, Any]) -> TrainingResult:
    steps = tuple(StepEnd(**step) for step in values["steps"])
    return TrainingResult(steps=steps, memory_peak_bytes=values["memory_peak_bytes"])


def train_one(way: str, job: TrainingJob) -> TrainingResult:
    """Run one method, which must fit into memory."""
    (result,) = train([(way, job)])
    if result is None:
        message = f"{way}: {job.at_once} samples at once do not fit into the GPU's memory"
        raise RuntimeError(message)
    return result


def fastest(tried: Mapping[int, TrainingResult | None]) -> int:
    """Return the fastest number of samples at once; None marks a size that did not fit.

    Raises:
        RuntimeError: no size fitted.
    """
    fitting = {size: result for size, result in tried.items() if result is not None}
    if not fitting:
        message = f"not even {min(tried)} samples at once fit into the GPU's memory"
        raise RuntimeError(message)
    return max(fitting, key=lambda size: tokens_per_s(fitting[size]))


def try_sizes(job: TrainingJob) -> dict[str, TrainingJob]:
    """Return each method's job, with its fastest number of samples at once."""
    short = dataclasses.replace(job, num_steps=NUM_TRIED_STEPS)
    jobs = {PACKED: job}
    for way in ALL_WAYS[1:]:
        trials = [(way, dataclasses.replace(short, at_once=size)) for size in AT_ONCE]
        size = fastest(dict(zip(AT_ONCE, train(trials), strict=True)))
        jobs[way] = dataclasses.replace(job, at_once=size)
    return jobs


def train_rounds(
    jobs: Mapping[str, TrainingJob], num_rounds: int
) -> dict[str, list[TrainingResult]]:
    """Run the methods in turn, each time in a new process."""
    runs: dict[str, list[TrainingResult]] = {way: [] for way in jobs}
    for _ in range(num_rounds):
        for way, job in jobs.items():
            runs[way].append(train_one(way, job))
    return runs


def train_together(jobs: Sequence[TrainingJob]) -> dict[str, list[TrainingResult]]:
    """Run each method with each job on a CPU: ours in one process, the peers in another."""
    runs: dict[str, list[TrainingResult]] = {way: [] for way in ALL_WAYS}
    for ways in (OURS, PEERS):
        requests = [(way, job) for way in ways for job in jobs]
        for (way, _), result in zip(requests, train(requests), strict=True):
            assert result is not None  # only a GPU can run out of memory here
            runs[way].append(result)
    return runs


def _peak_flops_per_s(precision: str) -> float | None:
    import torch

    from pipeline.timing import card_peaks

    return card_peaks.peak_flops_per_s(torch.cuda.get_device_name(), precision)


def measure_gpu(scratch: Path, num_steps: int, *, quick: bool) -> list[Row]:
    """Measure the model of 3.5 billion weights on the GPU."""
    job = TrainingJob(
        folder=prepare(scratch / "real", REAL, 4 * BATCH_SIZE),
        num_steps=num_steps,
        batch_size=BATCH_SIZE,
        at_once=min(AT_ONCE),
        row_tokens=4096,
        device="cuda",
        precision="bf16",
    )
    jobs = dict.fromkeys(ALL_WAYS, job) if quick else try_sizes(job)
    runs = train_rounds(jobs, 1)
    rows = compare_speed(runs, jobs, "3.5 B on a GPU", _peak_flops_per_s(job.precision))
    return [*rows, price_of_determinism(jobs[PACKED], runs[PACKED][0])]


def price_of_determinism(job: TrainingJob, usual: TrainingResult) -> Row:
    """Compare training with and without `train.deterministic`, which rules out some kernels."""
    result = train_one(PACKED, dataclasses.replace(job, deterministic=True))
    return row(
        "3.5 B on a GPU: packed, deterministic",
        "real tokens/s",
        tokens_per_s(result),
        peer="packed, not deterministic",
        peer_value=tokens_per_s(usual),
    )


def measure_cpu(scratch: Path, num_steps: int, num_rounds: int, *, quick: bool) -> list[Row]:
    """Measure the model of 3 million weights."""
    one = TrainingJob(
        folder=prepare(scratch / "one", TINY, BATCH_SIZE),
        num_steps=NUM_COMPARED,
        batch_size=BATCH_SIZE,
        at_once=min(AT_ONCE),
        row_tokens=512,
        device="cpu",
        precision="fp32",
        logs_steps=True,
    )
    many = dataclasses.replace(
        one, folder=prepare(scratch / "many", TINY, 256), num_steps=num_steps, logs_steps=False
    )
    if quick:
        both = train_together([many, one])
        jobs, runs = dict.fromkeys(ALL_WAYS, many), {way: both[way][:1] for way in both}
        steps_by_way = {way: both[way][1].steps for way in both}
    else:
        jobs = try_sizes(many)
        runs = train_rounds(jobs, num_rounds)
        steps_by_way = {way: results[0].steps for way, results in train_together([one]).items()}
    return compare_speed(runs, jobs, "tiny LLaVA", None) + compare_learning(steps_by_way)


def main() -> None:
    """Run the benchmark."""
    import torch

    options = arguments(__doc__)
    num_steps, num_rounds = (NUM_WARM + 2, 1) if options.quick else (12, 5)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_cpu(Path(folder), num_steps, num_rounds, quick=options.quick)
        notes = ["No GPU here: the model of 3.5 billion weights was not run."]
        if torch.cuda.is_available():
            rows += measure_gpu(Path(folder), num_steps, quick=options.quick)
            notes = [f"GPU: {torch.cuda.get_device_name()}."]
    packages = ["slurm-jobs", "torch", "transformers", "accelerate", "trl"]
    show(rows, options, packages, notes=notes)


if __name__ == "__main__":
    main()
