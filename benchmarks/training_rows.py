"""Rows of the training benchmark, from the step records of the methods."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.table import Row, row
from benchmarks.training_job import NUM_WARM, StepEnd, TrainingJob, TrainingResult

PEERS = ("Trainer", "SFTTrainer", "Trainer, ready")
PACKED, UNPACKED = OURS = ("ours", "ours unpacked")
ALL_WAYS = (*OURS, *PEERS)
LEARNING: Mapping[str, Callable[[StepEnd], Any]] = {
    "losses": lambda step: step.loss,
    "gradient norms": lambda step: step.grad_norm,
}
SAME = 1e-5
"""Tolerance of losses and gradient norms, relative. In fp32 the methods differ only in the order of
sums: by 1e-7 in losses (a float32's last digit) and 7e-7 in norms. A second beta of 0.999 instead
of 0.95 makes a difference of 8e-4 in four steps."""


def duration_s(result: TrainingResult) -> float:
    """Return the duration of the timed steps."""
    return result.steps[-1].unix_s - result.steps[NUM_WARM - 1].unix_s


def tokens_per_s(result: TrainingResult) -> float:
    """Return real tokens per second of the timed steps."""
    return sum(step.num_tokens for step in result.steps[NUM_WARM:]) / duration_s(result)


def flops_per_s(result: TrainingResult) -> float:
    """Return operations of the model per second of the timed steps."""
    return sum(step.model_flops for step in result.steps[NUM_WARM:]) / duration_s(result)


def compare_speed(
    runs: Mapping[str, Sequence[TrainingResult]],
    jobs: Mapping[str, TrainingJob],
    name: str,
    peak_flops_per_s: float | None,
) -> list[Row]:
    """Compare rates, memory on a GPU, and MFU if the card's peak is known."""

    def compare(case: str, unit: str, values: Mapping[str, float], **goal: float) -> list[Row]:
        return [
            row(
                f"{name}: {case}",
                unit,
                values[PACKED],
                peer=f"{way}, {jobs[way].at_once} at once",
                peer_value=values[way],
                **goal,
            )
            for way in (*PEERS, UNPACKED)
        ]

    rates = {way: statistics.median(map(tokens_per_s, results)) for way, results in runs.items()}
    rows = compare("packed", "real tokens/s", rates, ratio_at_least=1.0)
    if peak_flops_per_s is not None:
        mfu = {
            way: 100 * statistics.median(map(flops_per_s, results)) / peak_flops_per_s
            for way, results in runs.items()
        }
        rows += compare("MFU", "%", mfu)
    memory = {way: (results[0].memory_peak_bytes or 0) / 1e9 for way, results in runs.items()}
    return rows + (compare("peak memory", "GB", memory) if memory[PACKED] else [])


def compare_learning(steps_by_way: Mapping[str, Sequence[StepEnd]]) -> list[Row]:
    """Compare losses and gradient norms of steps on the same samples.

    Raises:
        RuntimeError: the samples differ.
    """
    expected = steps_by_way["Trainer"]
    for way, steps in steps_by_way.items():
        _check_same_samples(way, steps, expected)
    what = f"of {len(expected)} steps on the same samples"
    return [
        row(
            f"{name} {what}: {way}",
            "largest relative difference",
            max(abs(a / b - 1) for a, b in zip(map(read, steps), map(read, expected), strict=True)),
            peer=f"Trainer (last {read(expected[-1]):.6f})",
            at_most=SAME,
        )
        for way, steps in steps_by_way.items()
        if way != "Trainer"
        for name, read in LEARNING.items()
    ]


def _check_same_samples(way: str, steps: Sequence[StepEnd], expected: Sequence[StepEnd]) -> None:
    for number, (a, b) in enumerate(zip(steps, expected, strict=True)):
        # Records store operations as float32.
        if a.num_tokens != b.num_tokens or abs(a.model_flops / b.model_flops - 1) > 1e-6:
            message = f"step {number} of {way} is not of the Trainer's samples: {a}, {b}"
            raise RuntimeError(message)
