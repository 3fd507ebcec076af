"""Ways to put samples into batches, exactly as `train` does it, and their padding.

For a large data set a part is used, the first stretches in which a training packs its samples:
the packs are those of a training, not of a smaller data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from pipeline.data.order import stream_range
from pipeline.data.packing.budget import OverBudgetError, PackBudget, Packs, join_packs
from pipeline.data.packing.pack_order import STRETCH_SIZE, pack_order
from pipeline.data.packing.pack_statistics import sums_of
from pipeline.data.packing.work_model import WorkModel, pack_work
from pipeline.data.reading_plan import ReadingPlan, plan_grouped, plan_packed, plan_shuffled
from pipeline.train.training_data.batching import batch_layout, rows_per_step
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig

SETTINGS: Mapping[str, str] = {
    "shuffled": "{kind: shuffled}",
    "constrained": "{kind: packed, strategy: constrained}",
    "grouped": "{kind: grouped}",
    "greedy": "{kind: packed, strategy: greedy}",
    "ffd": "{kind: packed, strategy: ffd}",
    "bfd": "{kind: packed, strategy: bfd}",
    "knapsack": "{kind: packed, strategy: knapsack}",
    "exact": "{kind: packed, strategy: exact}",
}
"""Compared ways, with the `batching` of `train` for each. `shuffled` pads a microbatch to its
longest sample, often called no packing; `constrained` pads each sample to the row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLengths:
    """Lengths of all samples, in the order of the index."""

    num_tokens: np.ndarray
    """Integers [num_samples], image tokens included."""
    num_images: np.ndarray
    """Integers [num_samples]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings that all arrangements share."""

    config: TrainConfig
    """Config of a training; its `batching.kind` and `strategy` have no influence here."""
    budget: PackBudget
    """Budget of a row."""
    num_ranks: int
    work: WorkModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Results of one arrangement."""

    num_rows: int
    num_samples: int
    padding_share: float
    """Padding as a share of all computed tokens."""
    slowest_over_mean: float
    """Ratio of the slowest rank's work to the mean in a step, padding included; mean over the
    steps."""
    mean_work: float
    """Mean work of a rank in a step, in tokens' worth."""
    slowest_work: float
    """Mean work of the slowest rank in a step."""
    rows_per_step: int
    samples_per_step: float
    """Mean over steps, for all ranks."""
    tokens_per_step: float
    """Mean over steps, for all ranks, without padding."""


def plan_of(name: str, lengths: SampleLengths, settings: Settings) -> ReadingPlan:
    """Return a training's plan with this arrangement; packs contain only the samples in use.

    Args:
        name: One of `SETTINGS`.
        lengths: Lengths of the data set.
        settings: The same for all compared arrangements.

    Raises:
        StageConfigError: sizes do not divide, or a sample fits in no row.
    """
    config, seed = settings.config, settings.config.seed
    if name in {"shuffled", "grouped"}:
        layout = batch_layout(config, settings.num_ranks, config.global_batch_size)
        if name == "grouped":
            return plan_grouped(lengths.num_tokens, seed=seed, layout=layout)
        return plan_shuffled(len(lengths.num_tokens), seed=seed, layout=layout)
    try:
        stretches = pack_order(
            lengths.num_tokens,
            lengths.num_images,
            budget=settings.budget,
            strategy=name,
            words=[seed],
        )
    except OverBudgetError as error:
        options = (f"--{key.replace('_', '-')} {size}" for key, size in error.needed.items())
        message = f"{error}; to use longer rows: {' '.join(options)}"
        raise StageConfigError(message) from error
    except ValueError as error:
        raise StageConfigError(str(error)) from error
    packs = join_packs(list(islice(stretches, 1)))
    rows = rows_per_step(config, num_samples=len(packs.items), num_packs=len(packs))
    return plan_packed(
        packs,
        lambda some: pack_work(
            packs.some(some), lengths.num_tokens, lengths.num_images, settings.work
        ),
        seed=seed,
        layout=batch_layout(config, settings.num_ranks, rows),
        row_length=settings.budget.max_tokens,
    )


def count(plan: ReadingPlan, lengths: SampleLengths, settings: Settings) -> Counts:
    """Count rows, padding and evenness of the whole steps in use; of at least one step."""
    num_rows = min(plan.num_packs, STRETCH_SIZE)
    num_steps = max(1, num_rows // plan.layout.global_batch_size)
    tokens, padded, work = _steps(plan, range(num_steps), lengths, settings.work)
    num_samples = num_rows
    padding_share = float(1 - tokens.sum() / padded.sum())
    if plan.packs is not None:
        num_samples = len(plan.packs.items)
        if plan.row_length is not None:
            # For rows of one length all count, including those that fill no step.
            num_tokens = int(lengths.num_tokens[plan.packs.items].sum(dtype=np.int64))
            padding_share = 1 - num_tokens / (len(plan.packs) * plan.row_length)
    return Counts(
        num_rows=num_rows,
        num_samples=num_samples,
        padding_share=padding_share,
        slowest_over_mean=float((work.max(axis=1) / work.mean(axis=1)).mean()),
        mean_work=float(work.mean()),
        slowest_work=float(work.max(axis=1).mean()),
        rows_per_step=plan.layout.global_batch_size,
        samples_per_step=plan.layout.global_batch_size * num_samples / num_rows,
        tokens_per_step=float(tokens.sum() / num_steps),
    )


def work_of_step(plan: ReadingPlan, step: int, lengths: SampleLengths, work: WorkModel) -> float:
    """Return rank 0's work in a step, padding included, in tokens' worth."""
    return float(_steps(plan, range(step, step + 1), lengths, work)[2][0, 0])


def _steps(
    plan: ReadingPlan, steps: range, lengths: SampleLengths, work: WorkModel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens of each row without and with padding, and the work of each rank and step.

    Integers [num_steps, num_ranks, num_microbatches, rows] twice, float64 [num_steps,
    num_ranks].
    """
    layout = plan.layout
    first, last = (step * layout.global_batch_size for step in (steps.start, steps.stop))
    rows, _ = stream_range(first, last, plan.num_packs, plan.order)
    packs = plan.packs
    if packs is None:
        packs = Packs(bounds=np.arange(len(rows) + 1), items=rows)
        rows = np.arange(len(rows))
    tokens = sums_of(packs, lengths.num_tokens)
    whole = pack_work(packs, lengths.num_tokens, lengths.num_images, work)
    tokens, others = tokens[rows], (whole - tokens)[rows]
    shape = (len(steps), layout.num_ranks, layout.num_microbatches, -1)
    padded = _padded(tokens.reshape(shape), plan.row_length)
    return tokens.reshape(shape), padded, (padded + others.reshape(shape)).sum(axis=(2, 3))


def _padded(tokens: np.ndarray, row_length: int | None) -> np.ndarray:
    """Return tokens of each row with padding; the rows of a microbatch are on the last axis."""
    if row_length is not None:
        return np.full(tokens.shape, row_length)
    return np.broadcast_to(tokens.max(axis=-1, keepdims=True), tokens.shape)


def first_rows(plan: ReadingPlan, lengths: SampleLengths, num_rows: int) -> list[dict[str, Any]]:
    """Return the first rows of the first step, rank by rank, as the training pads them.

    `lengths` are the tokens of a row's samples, `padded` those of the row with its padding.
    """
    layout = plan.layout
    numbers, _ = stream_range(0, layout.global_batch_size, plan.num_packs, plan.order)
    rows = [lengths.num_tokens[list(plan.samples_of(int(number)))] for number in numbers]
    tokens = np.array([int(row.sum()) for row in rows])
    shape = (layout.num_ranks, layout.num_microbatches, -1)
    padded = _padded(tokens.reshape(shape), plan.row_length).reshape(-1)
    return [
        {"lengths": row.tolist(), "padded": int(length)}
        for row, length in zip(rows[:num_rows], padded[:num_rows], strict=True)
    ]
