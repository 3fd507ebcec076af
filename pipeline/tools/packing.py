"""Entry point of `packing`: from a data set and a training to a result per way of batching."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.packing.pack_order import STRETCH_SIZE
from pipeline.data.packing.work_model import WorkModel
from pipeline.data.reading_plan import ReadingPlan
from pipeline.tools.arrangements import (
    SETTINGS,
    Counts,
    SampleLengths,
    Settings,
    count,
    first_rows,
    plan_of,
    work_of_step,
)
from pipeline.tools.packing_picture import write_picture
from pipeline.tools.packing_timing import (
    Bench,
    Report,
    Timings,
    device_text,
    lacking_memory,
    make_bench,
    measure_plans,
)
from pipeline.train.training_data.batching import read_work_model, row_budget
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig

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
    is_model_known = arguments["is_model_known"]
    notes: list[str] = []
    config = build_config(TrainConfig, arguments["config"])
    if config.num_microbatches == "auto":  # a training finds it on its own devices
        notes.append("num_microbatches is auto: each rank's share of a step is shown in one piece")
        config = replace(config, num_microbatches=1)
    dataset = open_dataset(folder)
    whole = dataset.index.whole
    lengths = SampleLengths(num_tokens=whole("num_tokens"), num_images=whole("num_images"))
    bench = _fitting_bench(config, dataset, folder, notes) if is_model_known else None
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
    timings = None
    if arguments["limit_s"] is not None:
        if bench is not None:
            work_of = functools.partial(work_of_step, lengths=lengths, work=settings.work)
            limit_s = arguments["limit_s"]
            timings = _time(bench, plans, notes, work_of=work_of, limit_s=limit_s, report=report)
        elif not is_model_known:
            notes.append(
                "no spec names a model: nothing is timed, and work is counted in tokens only"
            )
    batching = config.batching
    configured = batching.strategy if batching.kind == "packed" else batching.kind
    ways: list[dict[str, Any]] = []
    for name, setting in SETTINGS.items():
        way: dict[str, Any] = {
            "name": name,
            "batching": setting,
            "is_configured": is_model_known and name == configured,
            "problem": problems.get(name),
            "rows": [],
        }
        if name in plans:
            way["rows"] = first_rows(plans[name], lengths, arguments["num_rows"])
            way |= _way_numbers(name, count(plans[name], lengths, settings), timings, num_ranks)
        ways.append(way)
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
        "refused": _problem_of_config(config, problems) if is_model_known else None,
        "ways": ways,
    }
    if arguments["picture"] is not None:
        write_picture(result, Path(arguments["picture"]))
    return result


def _fitting_bench(
    config: TrainConfig, dataset: ShardedDataset, folder: Path, notes: list[str]
) -> Bench | None:
    """Return the model for timed steps; None, and a note, if it does not fit the data set."""
    try:
        return make_bench(config, dataset, folder)
    except StageConfigError as error:
        notes.append(f"nothing is timed, and work is counted in tokens only: {error}")
        return None


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
    problem = lacking_memory(bench)
    if problem is not None:
        notes.append(f"nothing is timed: {problem}; set --no-timing to suppress this line")
        return None
    timings = measure_plans(bench, plans, work_of=work_of, limit_s=limit_s, report=report)
    if bench.config.device != "cpu" and bench.rank_device.device.type != "cuda":
        notes.append(
            "timed on the CPU, as there is no GPU here, though the training needs one, which may "
            "rank them differently: run it in a job with a GPU (srun --gpus 1 ...)"
        )
    too_large, missing, cold = [], [], []
    for name in plans:
        if name in timings.too_large:
            too_large.append(name)
        elif name not in timings.measured:
            missing.append(name)
        elif timings.measured[name].is_cold:
            cold.append(name)
    if missing:
        notes.append(f"{limit_s:g} s were over before these were timed: {', '.join(missing)}")
    if cold:
        notes.append(f"timed by one step, without a warm-up, for lack of time: {', '.join(cold)}")
    if too_large:
        notes.append(f"a step does not fit into this GPU's memory: {', '.join(too_large)}")
    return timings


def _problem_of_config(config: TrainConfig, problems: Mapping[str, str]) -> str | None:
    """Return why a training of this config would fail, if it would.

    `auto` tries two ways, and `none` of packing has the rows of `constrained`, padded
    differently; neither is among the shown ways.
    """
    kind, strategy = config.batching.kind, config.batching.strategy
    packed = "constrained" if strategy == "none" else strategy
    ways: list[str] = [kind]
    if kind == "packed":
        ways = [packed]
    elif kind == "auto":
        ways = ["grouped", packed]
    for name in ways:
        if name in problems:
            return problems[name]
    return None


def _way_numbers(
    name: str, counts: Counts, timings: Timings | None, num_ranks: int
) -> dict[str, Any]:
    numbers = {**asdict(counts), "samples_per_row": counts.num_samples / counts.num_rows}
    if timings is None or name not in timings.measured:
        return numbers
    speed = timings.measured[name]
    step_s = counts.slowest_work / speed.work_per_s  # all ranks wait for the slowest
    tokens_per_rank = counts.tokens_per_step / num_ranks
    return {
        **numbers,
        "tokens_per_s": tokens_per_rank * speed.work_per_s / counts.mean_work,
        "step_s": step_s,
        "s_per_1000_samples": 1000 * step_s / counts.samples_per_step,
        "fastest_over_median": speed.work_per_s / speed.median_work_per_s,
        "num_timed_steps": speed.num_steps,
        "timed_as": timings.same_as.get(name),
    }
