"""Training beside transformers' Trainer and TRL's SFTTrainer: same model, samples, effective batch.

    python -m benchmarks.training [--quick] [--json FILE]

A LLaVA of 3 million random weights learns chats of very unequal lengths on the CPU (fp32, all
cores), 32 samples a step. The ways take turns, each in a process of its own; a rate is of the real
tokens of all steps but the first two, from the end of the second step to the end of the last. Both
peers process pictures and text while they train, as their documentation has it for pictures; ours
did that before, and "ready" is the Trainer with samples that were processed before, too, and
batches of like lengths. Peers take 8 samples at once and accumulate; ours packs rows of 512 tokens.

That all ways learn the same is shown by the loss of one step on the same 32 samples. On a GPU the
script adds a model of 3 billion random weights in bf16 (SigLIP-so400m and the sizes of Qwen2.5-3B),
with activation memory as the peers' defaults need it. `python -m benchmarks.recording` has what the
recorder costs, `python -m benchmarks.checkpointing` what a checkpoint does.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.table import Row, arguments, row, show
from benchmarks.training_data import REAL, TINY, Size, make_processor, write_model, write_rows
from benchmarks.training_ways import TrainingJob

PEERS = ("Trainer", "SFTTrainer", "Trainer, ready")
BATCH_SIZE = 32
NUM_WARM = 2
"""Steps that are not timed."""
SAME_LOSS = 1e-4
"""Of two frameworks that add in another order, relative."""


def prepare(folder: Path, size: Size, num_rows: int) -> Path:
    """Everything that a way of training takes, in a folder."""
    from benchmarks.training_stage import make_dataset

    write_rows(folder / "source", num_rows, size)
    processor = make_processor(size)
    processor.save_pretrained(folder / "processor")
    write_model(folder / "model", size, processor.tokenizer)
    make_dataset(folder, max_tokens=size.num_image_tokens + 512)
    return folder


def train(way: str, job: TrainingJob) -> dict[str, Any]:
    """What `benchmarks.training_ways` found, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=job.folder) as scratch:
        asked, found = Path(scratch) / "job.json", Path(scratch) / "found.json"
        values = dataclasses.asdict(job)
        asked.write_text(json.dumps({**values, "folder": str(job.folder)}))
        argv = [sys.executable, "-m", "benchmarks.training_ways", way, str(asked), str(found)]
        done = subprocess.run(
            argv, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"{way} failed: {done.stderr[-2000:]}"
            raise RuntimeError(message)
        answer: dict[str, Any] = json.loads(found.read_text())
        return answer


def tokens_per_s(found: dict[str, Any]) -> float:
    """Real tokens a second, of the steps that are timed."""
    steps = found["steps"]
    duration_s = steps[-1][0] - steps[NUM_WARM - 1][0]
    return sum(num_tokens for _, num_tokens, _ in steps[NUM_WARM:]) / duration_s


def compare(job: TrainingJob, num_rounds: int, name: str, *, has_goal: bool) -> list[Row]:
    """Rates of all ways, and how much memory they took on a GPU."""
    ways = ("ours", "ours unpacked", *PEERS)
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(num_rounds):
        for way in ways:
            runs[way].append(train(way, job))
    rates = {way: statistics.median(map(tokens_per_s, found)) for way, found in runs.items()}
    least = 1.0 if has_goal else None
    rows = [
        row(
            f"{name}: packed",
            "real tokens/s",
            rates["ours"],
            peer=peer,
            peer_value=rates[peer],
            ratio_at_least=least,
        )
        for peer in (*PEERS, "ours unpacked")
    ]
    memory = {way: found[0]["memory_peak_bytes"] for way, found in runs.items()}
    if memory["ours"]:
        rows += [
            row(
                f"{name}: peak memory",
                "GB",
                memory["ours"] / 1e9,
                peer=peer,
                peer_value=memory[peer] / 1e9,
            )
            for peer in PEERS
        ]
    return rows


def compare_losses(job: TrainingJob) -> list[Row]:
    """The loss of one step on the same samples."""
    losses = {way: train(way, job)["steps"][0][2] for way in ("ours", "ours unpacked", *PEERS)}
    return [
        row(
            f"loss of one step on {BATCH_SIZE} samples: {way} ({losses[way]:.6f})",
            "relative difference",
            abs(losses[way] / losses["Trainer"] - 1),
            peer=f"Trainer ({losses['Trainer']:.6f})",
            at_most=SAME_LOSS,
        )
        for way in losses
        if way != "Trainer"
    ]


def measure_gpu(scratch: Path, num_steps: int) -> list[Row]:
    """The model of 3 billion weights, where there is a GPU."""
    job = TrainingJob(
        folder=prepare(scratch / "real", REAL, 4 * BATCH_SIZE),
        num_steps=num_steps,
        batch_size=BATCH_SIZE,
        row_tokens=4096,
        device="cuda",
        precision="bf16",
    )
    return compare(job, 1, "3 B on a GPU", has_goal=True)


def main() -> None:
    """Measure and print."""
    import torch

    options = arguments(__doc__)
    num_steps, num_rounds = (5, 1) if options.quick else (14, 5)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        one = TrainingJob(
            folder=prepare(scratch / "one", TINY, BATCH_SIZE),
            num_steps=1,
            batch_size=BATCH_SIZE,
            row_tokens=512,
            device="cpu",
            precision="fp32",
        )
        many = dataclasses.replace(
            one, folder=prepare(scratch / "many", TINY, 256), num_steps=num_steps
        )
        rows = compare(many, num_rounds, "tiny LLaVA", has_goal=True)
        rows += compare_losses(one)
        notes = ["No GPU here: the model of 3 billion weights was not run."]
        if torch.cuda.is_available():
            rows += measure_gpu(scratch, num_steps)
            notes = [f"GPU: {torch.cuda.get_device_name()}."]
    packages = ["slurm-jobs", "torch", "transformers", "accelerate", "trl"]
    show(rows, options, packages, notes=notes)


if __name__ == "__main__":
    main()
