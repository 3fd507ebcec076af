"""Stage's side of `slurm-jobs packing`: ways of batching and what they pad."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.dataset import open_dataset
from pipeline.data.loader import ReadingPlan, plan_grouped, plan_packed, plan_shuffled
from pipeline.data.order import stream_range
from pipeline.data.packing.budget import OverBudgetError, PackBudget, Packs, join_packs
from pipeline.data.packing.packs import STRETCH_SIZE, WorkModel, pack_order, pack_work, sums_of
from pipeline.tools.packing_timing import (
    Bench,
    Report,
    Timings,
    device_text,
    lacking_memory,
    make_bench,
    measure_plans,
    write_picture,
)
from pipeline.train.batching import batch_layout, read_work_model, row_budget, rows_per_step
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

# Ways to put samples into batches, exactly as `train` does it, and their padding.
#
# For a large data set a part is used, the first stretches in which a training packs its samples:
# the packs are those of a training, not of a smaller data set.


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
class Lengths:
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


def plan_of(name: str, lengths: Lengths, settings: Settings) -> ReadingPlan:
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


def count(plan: ReadingPlan, lengths: Lengths, settings: Settings) -> Counts:
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


def work_of_step(plan: ReadingPlan, step: int, lengths: Lengths, work: WorkModel) -> float:
    """Return rank 0's work in a step, padding included, in tokens' worth."""
    return float(_steps(plan, range(step, step + 1), lengths, work)[2][0, 0])


def _steps(
    plan: ReadingPlan, steps: range, lengths: Lengths, work: WorkModel
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


def first_rows(plan: ReadingPlan, lengths: Lengths, num_rows: int) -> list[dict[str, Any]]:
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


# Entry point: from a data set and a training's config to a result per way of batching.


_TOKENS_ALONE = WorkModel(per_image=0, per_square_token=0)
"""Work model if no model is known."""


def run(arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compute padding, balance and cost of each way of batching.

    `arguments`: `folder` of the data set, `config` of `train`, `is_model_known`, `num_ranks`,
    `num_rows` to draw, `limit_s` of timing (None: none) and `picture` to write (or None).

    Raises:
        StageError: the data set is unfinished or damaged.
        StageConfigError: sizes do not divide, or a sample fits in no row.
    """
    folder, num_ranks = Path(arguments["folder"]), arguments["num_ranks"]
    notes: list[str] = []
    config = build_config(TrainConfig, arguments["config"])
    if config.num_microbatches == "auto":  # a training finds it on its own devices
        notes.append("num_microbatches is auto: each rank's share of a step is shown in one piece")
        config = replace(config, num_microbatches=1)
    dataset = open_dataset(folder)
    whole = dataset.index.whole
    lengths = Lengths(num_tokens=whole("num_tokens"), num_images=whole("num_images"))
    bench = None
    if arguments["is_model_known"]:
        try:
            bench = make_bench(config, dataset, folder)
        except StageConfigError as error:
            notes.append(f"nothing is timed, and work is counted in tokens only: {error}")
    settings = Settings(
        config=config,
        budget=row_budget(config, dataset.info),
        num_ranks=num_ranks,
        work=_TOKENS_ALONE if bench is None else read_work_model(bench.skeleton, dataset),
    )
    plans: dict[str, ReadingPlan] = {}
    problems: dict[str, str] = {}
    for number, name in enumerate(SETTINGS):
        report(number, len(SETTINGS), "ways packed")
        try:
            plans[name] = plan_of(name, lengths, settings)
        except StageConfigError as error:
            problems[name] = str(error)
    if not plans:  # all ways share the error
        raise StageConfigError(next(iter(problems.values())))
    timings, limit_s = None, arguments["limit_s"]
    if limit_s is not None and bench is not None:
        work_of = functools.partial(work_of_step, lengths=lengths, work=settings.work)
        timings = _time(bench, plans, notes, work_of=work_of, limit_s=limit_s, report=report)
    elif limit_s is not None and not arguments["is_model_known"]:
        notes.append("no spec names a model: nothing is timed, and work is counted in tokens only")
    configured, refused = _way_of_config(config, problems)
    ways: list[dict[str, Any]] = []
    for name, batching in SETTINGS.items():
        is_configured = arguments["is_model_known"] and name == configured
        way = {"name": name, "batching": batching, "is_configured": is_configured}
        if name in problems:
            ways.append({**way, "problem": problems[name], "rows": []})
            continue
        numbers = _way_numbers(name, count(plans[name], lengths, settings), timings, num_ranks)
        rows = first_rows(plans[name], lengths, arguments["num_rows"])
        ways.append({**way, "problem": None, **numbers, "rows": rows})
    result = {
        "num_samples": len(dataset),
        "num_looked_at": min(len(dataset), STRETCH_SIZE),
        "max_tokens": settings.budget.max_tokens,
        "max_images": settings.budget.max_images,
        "num_ranks": num_ranks,
        "global_batch_size": config.global_batch_size,
        "num_microbatches": config.num_microbatches,
        "device": device_text(bench.rank_device) if bench and timings else None,
        "notes": notes,
        "refused": refused if arguments["is_model_known"] else None,
        "ways": ways,
    }
    if arguments["picture"] is not None:
        write_picture(result, Path(arguments["picture"]))
    return result


def _time(
    bench: Bench,
    plans: Mapping[str, ReadingPlan],
    notes: list[str],
    *,
    work_of: Callable[[ReadingPlan, int], float],
    limit_s: float,
    report: Report,
) -> Timings | None:
    """Time steps of the plans; add notes on what was not timed, and why."""
    if problem := lacking_memory(bench):
        notes.append(f"nothing is timed: {problem}; set --no-timing to suppress this line")
        return None
    timings = measure_plans(bench, plans, work_of=work_of, limit_s=limit_s, report=report)
    if bench.config.device != "cpu" and bench.rank_device.device.type != "cuda":
        notes.append(
            "timed on the CPU, as there is no GPU here, though the training needs one, which may "
            "rank them differently: run it in a job with a GPU (srun --gpus 1 ...)"
        )
    missing = [n for n in plans if n not in timings.measured and n not in timings.too_large]
    cold = [name for name, measured in timings.measured.items() if measured.is_cold]
    too_large = [name for name in plans if name in timings.too_large]
    for note, names in (
        (f"{limit_s:g} s were over before these were timed", missing),
        ("timed by one step, without a warm-up, for lack of time", cold),
        ("a step does not fit into this GPU's memory", too_large),
    ):
        if names:
            notes.append(f"{note}: {', '.join(names)}")
    return timings


def _way_of_config(config: TrainConfig, problems: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the config's way, and why a training of it would fail, if it would.

    `auto` tries two ways, and `none` of packing has the rows of `constrained`, padded
    differently; neither is among the shown ways.
    """
    kind, strategy = config.batching.kind, config.batching.strategy
    packed = "constrained" if strategy == "none" else strategy
    tried = {"packed": (packed,), "auto": ("grouped", packed)}.get(kind, (kind,))
    refused = next((problems[name] for name in tried if name in problems), None)
    return (strategy if kind == "packed" else kind), refused


def _way_numbers(
    name: str, counts: Counts, timings: Timings | None, num_ranks: int
) -> dict[str, Any]:
    numbers = {**asdict(counts), "samples_per_row": counts.num_samples / counts.num_rows}
    measured = timings.measured.get(name) if timings else None
    if timings is None or measured is None:
        return numbers
    step_s = counts.slowest_work / measured.work_per_s  # all ranks wait for the slowest
    tokens_per_rank = counts.tokens_per_step / num_ranks
    return {
        **numbers,
        "tokens_per_s": tokens_per_rank * measured.work_per_s / counts.mean_work,
        "step_s": step_s,
        "s_per_1000_samples": 1000 * step_s / counts.samples_per_step,
        "fastest_over_median": measured.work_per_s / measured.median_work_per_s,
        "num_timed_steps": measured.num_steps,
        "timed_as": timings.same_as.get(name),
    }
