"""Training beside transformers' Trainer and TRL's SFTTrainer: same model, samples, effective batch.

    python -m benchmarks.training [--quick] [--json FILE]

A LLaVA of 3 million random weights learns chats of very unequal lengths on the CPU (fp32, all
cores), 32 samples a step. The ways take turns, each in a process of its own; a rate is of the real
tokens of all steps but the first two, from the end of the second step to the end of the last. Both
peers process pictures and text while they train, as their documentation has it for pictures; ours
did that before, and "ready" is the Trainer with samples that were processed before, too, and
batches of like lengths. Nobody saves or exports anything.

How many samples are computed at once before gradients are added up to those of 32 is for each way
what was fastest in a short trial of 8, 16 and 32 (on a GPU of what fits), and stands in the table.
Ours packs rows of 512 tokens, all of a step at once; on a GPU rows of 4,096, as many at once as
`num_microbatches: auto` finds room for. `--quick` tries nothing (8 at once), and on the CPU has the
peers share a process, and our ways another.

That all ways learn the same is shown by losses and gradient norms of four steps on the same 32
samples: a wrong update shows in the losses, a wrong scale of gradients, which AdamW does not mind,
in the norms. AdamW's settings are the same everywhere. Tokens and operations of each of these steps
must be equal.

On a GPU the script adds a model of 3.5 billion random weights in bf16 (the sizes of SigLIP-so400m
and Qwen2.5-3B), with activation memory as the peers' defaults need it, and shows MFU, peak memory
and what `deterministic` costs. MFU is, for all ways alike, the operations of the timed steps by the
formula of `pipeline.timing.flops` over the time that the rate is of and the card's peak: ours come
from the step records, a peer's are computed from what its model was given, padding left out.
`python -m benchmarks.recording` has what the recorder costs, `python -m benchmarks.checkpointing`
what a checkpoint does.
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
from benchmarks.training_job import NUM_WARM, Found, StepEnd, TrainingJob
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
"""Samples of a microbatch that are tried."""
NUM_TRIED_STEPS = NUM_WARM + 3
NUM_COMPARED = 4
"""Steps whose losses and gradient norms are."""


def prepare(folder: Path, size: Size, num_rows: int) -> Path:
    """Everything that a way of training takes, in a folder."""
    from benchmarks.training_stage import make_dataset

    write_rows(folder / "source", num_rows, size)
    processor = make_processor(size)
    processor.save_pretrained(folder / "processor")
    write_model(folder / "model", size, processor.tokenizer)
    make_dataset(folder, max_tokens=size.num_image_tokens + 512)
    return folder


def train(asked: Sequence[tuple[str, TrainingJob]]) -> list[Found | None]:
    """What `benchmarks.training_ways` found, in one process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        asked_file, found_file = Path(scratch) / "asked.json", Path(scratch) / "found.json"
        values = [
            (way, {**dataclasses.asdict(job), "folder": str(job.folder)}) for way, job in asked
        ]
        asked_file.write_text(json.dumps(values))
        argv = [sys.executable, "-m", "benchmarks.training_ways", str(asked_file), str(found_file)]
        done = subprocess.run(
            argv, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"{[way for way, _ in asked]} failed: {done.stderr[-2000:]}"
            raise RuntimeError(message)
        return [
            None if told is None else _read(told) for told in json.loads(found_file.read_text())
        ]


def _read(told: Mapping[str, Any]) -> Found:
    steps = tuple(StepEnd(**step) for step in told["steps"])
    return Found(steps=steps, memory_peak_bytes=told["memory_peak_bytes"])


def train_one(way: str, job: TrainingJob) -> Found:
    """The same of one way, which has to fit."""
    (found,) = train([(way, job)])
    if found is None:
        message = f"{way}: {job.at_once} samples at once do not fit into the GPU's memory"
        raise RuntimeError(message)
    return found


def fastest(tried: Mapping[int, Found | None]) -> int:
    """How many samples at once were; None did not fit.

    Raises:
        RuntimeError: none of them did.
    """
    fitting = {size: found for size, found in tried.items() if found is not None}
    if not fitting:
        message = f"not even {min(tried)} samples at once fit into the GPU's memory"
        raise RuntimeError(message)
    return max(fitting, key=lambda size: tokens_per_s(fitting[size]))


def try_sizes(job: TrainingJob) -> dict[str, TrainingJob]:
    """Each way's job, with as many samples at once as are fastest."""
    short = dataclasses.replace(job, num_steps=NUM_TRIED_STEPS)
    jobs = {PACKED: job}
    for way in ALL_WAYS[1:]:
        trials = [(way, dataclasses.replace(short, at_once=size)) for size in AT_ONCE]
        size = fastest(dict(zip(AT_ONCE, train(trials), strict=True)))
        jobs[way] = dataclasses.replace(job, at_once=size)
    return jobs


def train_rounds(jobs: Mapping[str, TrainingJob], num_rounds: int) -> dict[str, list[Found]]:
    """The ways in turn, each time in a process of its own."""
    runs: dict[str, list[Found]] = {way: [] for way in jobs}
    for _ in range(num_rounds):
        for way, job in jobs.items():
            runs[way].append(train_one(way, job))
    return runs


def train_together(jobs: Sequence[TrainingJob]) -> dict[str, list[Found]]:
    """Each way with each of some jobs; ours in one process, the peers in another, on a CPU."""
    runs: dict[str, list[Found]] = {way: [] for way in ALL_WAYS}
    for ways in (OURS, PEERS):
        asked = [(way, job) for way in ways for job in jobs]
        for (way, _), found in zip(asked, train(asked), strict=True):
            assert found is not None  # memory of a GPU alone runs out
            runs[way].append(found)
    return runs


def _peak_flops_per_s(precision: str) -> float | None:
    """None of a card whose data sheet we do not have."""
    import torch

    from pipeline.timing import flops

    return flops.peak_flops_per_s(torch.cuda.get_device_name(), precision)


def measure_gpu(scratch: Path, num_steps: int, *, quick: bool) -> list[Row]:
    """The model of 3.5 billion weights, where there is a GPU."""
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


def price_of_determinism(job: TrainingJob, usual: Found) -> Row:
    """`train.deterministic` beside the same training without it; it refuses some kernels."""
    found = train_one(PACKED, dataclasses.replace(job, deterministic=True))
    return row(
        "3.5 B on a GPU: packed, deterministic",
        "real tokens/s",
        tokens_per_s(found),
        peer="packed, not deterministic",
        peer_value=tokens_per_s(usual),
    )


def measure_cpu(scratch: Path, num_steps: int, num_rounds: int, *, quick: bool) -> list[Row]:
    """The model of 3 million weights."""
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
        beside = {way: both[way][1].steps for way in both}
    else:
        jobs = try_sizes(many)
        runs = train_rounds(jobs, num_rounds)
        beside = {way: found[0].steps for way, found in train_together([one]).items()}
    return compare_speed(runs, jobs, "tiny LLaVA", None) + compare_learning(beside)


def main() -> None:
    """Measure and print."""
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
