"""Entry point: from a data set and a training's config to a result per way of batching."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.packing import WorkModel
from pipeline.data.reading_plan import ReadingPlan
from pipeline.packing_view.arrangements import (
    SETTINGS,
    Counts,
    Lengths,
    Settings,
    count,
    first_rows,
    plan_of,
    work_of_step,
)
from pipeline.packing_view.picture import write_picture
from pipeline.packing_view.timing import (
    Bench,
    Report,
    Timings,
    device_text,
    lacking_memory,
    make_bench,
    measure_plans,
)
from pipeline.training.batching import read_work_model, row_budget
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

_TOKENS_ALONE = WorkModel(per_image=0, per_square_token=0)
"""Work model if no model is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ways:
    """Plans and their results, by name; for impossible ones the reason."""

    plans: Mapping[str, ReadingPlan]
    counts: Mapping[str, Counts]
    problems: Mapping[str, str]


def run(arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compute padding, balance and cost of each way of batching.

    `arguments`: `folder` of the data set, `config` of `train`, `is_model_known`, `num_ranks`,
    `num_rows` to draw, `limit_s` of timing (None: none) and `picture` to write (or None).

    Raises:
        StageError: the data set is unfinished or damaged.
        StageConfigError: sizes do not divide, or a sample fits in no row.
    """
    folder = Path(arguments["folder"])
    notes: list[str] = []
    config = _with_number(build_config(TrainConfig, arguments["config"]), notes)
    dataset = open_dataset(folder)
    lengths = _lengths(dataset)
    bench = _bench(config, dataset, folder, notes) if arguments["is_model_known"] else None
    settings = _settings(config, dataset, arguments, bench)
    ways, timings = _arrange(lengths, settings, report), None
    limit_s = arguments["limit_s"]
    if limit_s is not None and (found := _untimed(bench, settings)):
        notes.append(found)
    elif limit_s is not None and bench is not None:
        work_of = functools.partial(work_of_step, lengths=lengths, work=settings.work)
        timings = measure_plans(bench, ways.plans, work_of=work_of, limit_s=limit_s, report=report)
        notes += [*_device_notes(bench), *_time_notes(timings, ways, limit_s)]
    result = {
        **_heading(dataset, settings),
        "device": device_text(bench.workplace) if bench and timings else None,
        "notes": notes,
        "refused": _refusal(ways, settings),
        "ways": [_way(name, ways, timings, settings) for name in SETTINGS],
    }
    for way in result["ways"]:
        way["rows"] = _rows(ways, way["name"], lengths, arguments["num_rows"])
    if arguments["picture"] is not None:
        write_picture(result, Path(arguments["picture"]))
    return result


def _with_number(config: TrainConfig, notes: list[str]) -> TrainConfig:
    """Set one microbatch, because a training finds its number on its own devices."""
    if config.num_microbatches != "auto":
        return config
    notes.append("num_microbatches is auto: each rank's share of a step is shown in one piece")
    return replace(config, num_microbatches=1)


def _untimed(bench: Bench | None, settings: Settings) -> str | None:
    """Return why nothing is timed, if no other note says it."""
    if not settings.is_spec_known:
        return "no spec names a model: nothing is timed, and work is counted in tokens only"
    problem = None if bench is None else lacking_memory(bench)
    if problem is None:
        return None
    return f"nothing is timed: {problem}; set --no-timing to suppress this line"


def _lengths(dataset: ShardedDataset) -> Lengths:
    whole = dataset.index.whole
    return Lengths(num_tokens=whole("num_tokens"), num_images=whole("num_images"))


def _bench(
    config: TrainConfig, dataset: ShardedDataset, folder: Path, notes: list[str]
) -> Bench | None:
    """Return the model for timing; without one, add a note with the reason."""
    try:
        return make_bench(config, dataset, folder)
    except StageConfigError as error:
        notes.append(f"nothing is timed, and work is counted in tokens only: {error}")
        return None


def _settings(
    config: TrainConfig, dataset: ShardedDataset, arguments: Mapping[str, Any], bench: Bench | None
) -> Settings:
    return Settings(
        config=config,
        is_spec_known=arguments["is_model_known"],
        budget=row_budget(config, dataset.info),
        num_ranks=arguments["num_ranks"],
        work=_TOKENS_ALONE if bench is None else read_work_model(bench.skeleton, dataset),
    )


def _arrange(lengths: Lengths, settings: Settings, report: Report) -> _Ways:
    """Compute every way; raises an error that all of them share."""
    plans, counts, problems = {}, {}, {}
    for number, name in enumerate(SETTINGS):
        report(number, len(SETTINGS), "ways packed")
        try:
            plan = plan_of(name, lengths, settings)
        except StageConfigError as error:
            problems[name] = str(error)
            continue
        plans[name] = plan
        counts[name] = count(plan, lengths, settings)
    if not plans:
        raise StageConfigError(next(iter(problems.values())))
    return _Ways(plans=plans, counts=counts, problems=problems)


def _heading(dataset: ShardedDataset, settings: Settings) -> dict[str, Any]:
    config = settings.config
    return {
        "num_samples": len(dataset),
        "num_looked_at": min(len(dataset), settings.num_looked_at),
        "max_tokens": settings.budget.max_tokens,
        "max_images": settings.budget.max_images,
        "num_ranks": settings.num_ranks,
        "global_batch_size": config.global_batch_size,
        "num_microbatches": config.num_microbatches,
    }


def _configured(config: TrainConfig) -> str:
    """Return the config's way; `auto`, or `none` of packing, is not among the shown ways."""
    batching = config.batching
    return batching.strategy if batching.kind == "packed" else batching.kind


def _refusal(ways: _Ways, settings: Settings) -> str | None:
    """Return why a training of the spec would fail; None if it would not, or without a spec.

    `auto` tries two ways, and `none` of packing has the rows of `constrained`, padded
    differently.
    """
    if not settings.is_spec_known:
        return None
    kind, strategy = settings.config.batching.kind, settings.config.batching.strategy
    packed = "constrained" if strategy == "none" else strategy
    tried = {"packed": (packed,), "auto": ("grouped", packed)}.get(kind, (kind,))
    return next((ways.problems[name] for name in tried if name in ways.problems), None)


def _device_notes(bench: Bench) -> list[str]:
    if bench.config.device == "cpu" or bench.workplace.device.type == "cuda":
        return []
    note = (
        "timed on the CPU, as there is no GPU here, though the training needs one, which may "
        "rank them differently: run it in a job with a GPU (srun --gpus 1 ...)"
    )
    return [note]


def _time_notes(timings: Timings, ways: _Ways, limit_s: float) -> list[str]:
    missing = [n for n in ways.plans if n not in timings.measured and n not in timings.too_large]
    cold = [name for name, measured in timings.measured.items() if measured.is_cold]
    notes = []
    if missing:
        notes.append(f"{limit_s:g} s were over before these were timed: {', '.join(missing)}")
    if cold:
        notes.append(f"timed by one step, without a warm-up, for lack of time: {', '.join(cold)}")
    if timings.too_large:
        listed = ", ".join(name for name in ways.plans if name in timings.too_large)
        notes.append(f"a step does not fit into this GPU's memory: {listed}")
    return notes


def _way(name: str, ways: _Ways, timings: Timings | None, settings: Settings) -> dict[str, Any]:
    """Return all numbers of one way."""
    about = {
        "name": name,
        "batching": SETTINGS[name],
        "is_configured": settings.is_spec_known and name == _configured(settings.config),
        "problem": ways.problems.get(name),
    }
    if name in ways.problems:
        return about
    counts = ways.counts[name]
    numbers = {
        **about,
        **asdict(counts),
        "samples_per_row": counts.num_samples / counts.num_rows,
    }
    measured = timings.measured.get(name) if timings else None
    if timings is None or measured is None:
        return numbers
    step_s = counts.slowest_work / measured.work_per_s  # all ranks wait for the slowest
    tokens_per_rank = counts.tokens_per_step / settings.num_ranks
    return {
        **numbers,
        "tokens_per_s": tokens_per_rank * measured.work_per_s / counts.mean_work,
        "step_s": step_s,
        "s_per_1000_samples": 1000 * step_s / counts.samples_per_step,
        "fastest_over_median": measured.work_per_s / measured.median_work_per_s,
        "num_timed_steps": measured.num_steps,
        "timed_as": timings.same_as.get(name),
    }


def _rows(ways: _Ways, name: str, lengths: Lengths, num_rows: int) -> list[dict[str, Any]]:
    if name in ways.problems:
        return []
    rows = first_rows(ways.plans[name], lengths, num_rows)
    return [{"lengths": list(row.lengths), "padded": row.padded} for row in rows]
