"""Samples of each batch and row in this training: planned once, equal on every rank."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline.data.dataset import ShardedDataset
from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.order import BatchLayout
from pipeline.data.packing.budget import OverBudgetError, PackBudget
from pipeline.data.packing.pack_files import open_packs, plan_name, write_packs
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.work_model import WorkModel, pack_work, work_model
from pipeline.data.reading_plan import ReadingPlan, plan_grouped, plan_packed, plan_shuffled
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import DamagedFileError, StageConfigError
from slurm_jobs.base.files import make_private_dir
from slurm_jobs.formats.configs.train import TrainConfig

log = logging.getLogger(__name__)


def plan_reading(
    config: TrainConfig,
    dataset: ShardedDataset,
    *,
    model: WorkModel,
    ranks: Ranks,
    packs_dirs: tuple[Path, ...],
) -> ReadingPlan:
    """Return the plan of the config.

    Rank 0 computes packs and stores them, for other attempts and trainings, in the first of
    `packs_dirs` that is writable.

    Raises:
        StageConfigError: sizes do not divide, or a sample fits in no row.
    """
    kind = config.batching.kind
    if kind == "packed":
        return _plan_packed(config, dataset, model, ranks, packs_dirs)
    layout = batch_layout(config, ranks.num_ranks, config.global_batch_size)
    if kind == "grouped":
        return plan_grouped(dataset.index.whole("num_tokens"), seed=config.seed, layout=layout)
    return plan_shuffled(len(dataset), seed=config.seed, layout=layout)


def read_work_model(model: VisionLanguageModel, dataset: ShardedDataset) -> WorkModel:
    """Return the cost of images and attention in this model, in units of one token."""
    info = dataset.info
    if info.image_height is not None and info.image_width is not None:
        mean_pixels = info.image_height * info.image_width
    else:
        mean_pixels = int(dataset.index.whole("num_pixels").sum()) // max(1, info.num_images)
    # A layer has about 12 times its width squared; accurate enough to compare towers.
    vision, language = (12 * t.num_layers * t.hidden_size**2 for t in model.sizes())
    return work_model(
        hidden_size=model.sizes()[1].hidden_size,
        num_patches=mean_pixels // model.patch_size**2,
        vision_parameters=vision,
        language_parameters=language,
    )


def batch_layout(config: TrainConfig, num_ranks: int, global_batch_size: int) -> BatchLayout:
    """Return the division of a global batch of this size; `num_microbatches` is a number here.

    Raises:
        StageConfigError: sizes do not divide.
    """
    assert config.num_microbatches != "auto"
    try:
        return BatchLayout(
            global_batch_size=global_batch_size,
            num_lanes=config.num_lanes,
            num_ranks=num_ranks,
            num_microbatches=config.num_microbatches,
        )
    except StageConfigError as error:
        if global_batch_size == config.global_batch_size:
            raise
        message = (
            f"packed, the {config.global_batch_size} samples of a step are {global_batch_size} "
            f"rows, which is the global_batch_size here: {error}; change num_microbatches, or "
            f"global_batch_size ({config.global_batch_size})"
        )
        raise StageConfigError(message) from error


def row_budget(config: TrainConfig, info: DatasetInfo) -> PackBudget:
    """Return the limits of a packed row: from the config, else those of a sample."""
    return PackBudget(
        max_tokens=config.batching.max_tokens or info.preprocess["max_tokens"],
        max_images=config.batching.max_images,
    )


def _plan_packed(
    config: TrainConfig,
    dataset: ShardedDataset,
    model: WorkModel,
    ranks: Ranks,
    packs_dirs: tuple[Path, ...],
) -> ReadingPlan:
    budget = row_budget(config, dataset.info)
    key = {
        "dataset": dataset.info.fingerprint,
        "strategy": config.batching.strategy,
        "max_tokens": budget.max_tokens,
        "max_images": budget.max_images,
        "seed": config.seed,
    }
    path = None
    if ranks.rank == 0:
        path = _keep_packs(config, dataset, budget, key, packs_dirs)
    ranks.meet(f"packing/{plan_name(key)}", speaks=ranks.rank == 0)
    path = ranks.from_main(path)
    packs = open_packs(path, key, verify=False)  # rank 0 has compared the checksums
    rows = rows_per_step(config, num_samples=len(dataset), num_packs=len(packs))
    if ranks.rank == 0:
        log.info(
            "%d samples in %d rows of %d tokens, %.2f %% padding; %d rows a step, %.1f samples",
            len(dataset),
            len(packs),
            budget.max_tokens,
            100 * (1 - dataset.info.num_tokens / (len(packs) * budget.max_tokens)),
            rows,
            rows * len(dataset) / len(packs),
        )
    num_tokens, num_images = dataset.index.whole("num_tokens"), dataset.index.whole("num_images")
    return plan_packed(
        packs,
        lambda numbers: pack_work(packs.some(numbers), num_tokens, num_images, model),
        seed=config.seed,
        layout=batch_layout(config, ranks.num_ranks, rows),
        row_length=None if config.batching.strategy == "none" else budget.max_tokens,
    )


def _keep_packs(
    config: TrainConfig,
    dataset: ShardedDataset,
    budget: PackBudget,
    key: Mapping[str, Any],
    folders: tuple[Path, ...],
) -> Path:
    """Return the path of the packs, computed if they do not exist.

    Raises:
        StageConfigError: a sample fits in no row.
        OSError: none of the folders is writable.
    """
    name = plan_name(key)
    for folder in folders:
        try:
            open_packs(folder / name, key)
        except FileNotFoundError:
            continue
        except (OSError, DamagedFileError) as error:
            log.warning("packs are computed again: %s", error)
            continue
        return folder / name
    for folder in folders:
        try:
            make_private_dir(folder)
            packs = pack_order(
                dataset.index.whole("num_tokens"),
                dataset.index.whole("num_images"),
                budget=budget,
                strategy=config.batching.strategy,
                words=[config.seed],
            )
            write_packs(folder / name, packs, key)
        except OverBudgetError as error:
            settings = " and ".join(
                f"batching.{setting} to {size:,} or more (--set "
                f"stages.STAGE.config.batching.{setting}={size})"
                for setting, size in error.needed.items()
            )
            message = (
                f"batching: {error} ({dataset.where(error.number)}); set {settings}, or let "
                "`preprocess` leave out or cut longer samples (its "
                f"{' and '.join(error.needed)})"
            )
            raise StageConfigError(message) from error
        except ValueError as error:
            message = f"batching: {error}"
            raise StageConfigError(message) from error
        except OSError as error:
            if folder == folders[-1]:
                raise
            log.warning("packs cannot be stored in %s (%s); trying the next folder", folder, error)
            continue
        return folder / name
    message = "no folder for packs"
    raise AssertionError(message)


def rows_per_step(config: TrainConfig, *, num_samples: int, num_packs: int) -> int:
    """Return rows of a global batch of packs: the multiple of `num_lanes` nearest to its samples.

    At least one row per lane.
    """
    lane_rows = config.global_batch_size * num_packs / num_samples / config.num_lanes
    return max(1, round(lane_rows)) * config.num_lanes


def steps_to_make(config: TrainConfig, plan: ReadingPlan) -> int:
    """Return `num_steps`, or the steps of `num_epochs`.

    Raises:
        StageConfigError: the epochs do not fill one step.
    """
    if config.num_steps is not None:
        return config.num_steps
    # The number as decimal: 0.29 epochs of 100 samples are 29, but slightly less as float.
    num_epochs = Fraction(str(config.num_epochs))
    batch_size = plan.layout.global_batch_size
    num_steps = math.floor(num_epochs * plan.num_packs / batch_size)
    if num_steps < 1:
        what = "samples" if plan.packs is None else "rows"
        message = (
            f"num_epochs is {config.num_epochs}: {plan.num_packs} {what} of it are less than one "
            f"step of {batch_size}; set more epochs, num_steps, or a smaller global_batch_size "
            f"({config.global_batch_size})"
        )
        raise StageConfigError(message)
    return num_steps
