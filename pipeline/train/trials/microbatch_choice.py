"""Choice of `num_microbatches: auto`: searched for once, and stored next to the checkpoints.

The number changes the last bits of the results, not the samples of a step. So attempts on the
same number of ranks and the same kind of devices reuse the stored number.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.train.memory import measured_memory
from pipeline.train.trials.microbatch_search import GB, search
from pipeline.train.trials.stored_choice import as_json, read_kept
from pipeline.train.trials.trial import TrialInputs
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.configs.train import TrainConfig

log = logging.getLogger(__name__)

_DECIDE = (
    *("strategy", "accelerate", "sharding", "deterministic", "num_steps", "num_epochs"),
    *("optimizer", "memory_share", "activation_checkpointing", "compile"),
)
"""Fields of the config on which the number depends, too."""


def settle_microbatches(trial: TrialInputs, folder: Path) -> TrainConfig:
    """Return the config with a number of microbatches; a collective if it is searched for.

    `folder` stores it, by kind of batching.

    Raises:
        StageConfigError: a single row does not fit in memory.
    """
    config, ranks = trial.config, trial.ranks
    if config.num_microbatches != "auto":
        return config
    device, file, kind = (
        trial.rank_device.device,
        folder / "microbatches.json",
        config.batching.kind,
    )
    capacity = measured_memory.read_capacity(device, trial.num_local_ranks)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    devices = ranks.gather(f"{name}, {capacity / GB:.1f} GB")
    # what another attempt must have in common
    key = trial.describe(*_DECIDE) | {
        "precision": trial.rank_device.precision,
        "spread": asdict(trial.strategy.facts(trial.parallel)),  # a file of accelerate may change
        "num_ranks": ranks.num_ranks,
        "devices": sorted(set(devices)),
    }
    choices = {}
    if ranks.rank == 0:
        consequence = "num_microbatches is searched for again"
        choices = read_kept(file, _check_choices, consequence) or {}
    kept = choices.get(kind, {"key": None})
    number = ranks.from_main(kept["num_microbatches"] if kept["key"] == as_json(key) else None)
    if number is None:
        with trial.spans.span("microbatch_search") as notes:
            result = search(trial, capacity)
            notes |= {"num_microbatches": result.num_microbatches, "batching": kind}
        number, use = result.num_microbatches, result.use
        if ranks.rank == 0:
            write_json_atomic(file, {**choices, kind: {"key": key, **asdict(result)}})
            log.info(
                "num_microbatches: auto takes %s of %s a step on each rank (batching: %s): the "
                "heaviest needs %s of the %s that memory_share allows (%.0f %% of %s); found in "
                "%.1f s",
                f"{number:,} microbatch{'' if number == 1 else 'es'}",
                f"{result.num_rows:,} row{'' if result.num_rows == 1 else 's'}",
                kind,
                _gb_text(use.peak_bytes),
                _gb_text(use.capacity_bytes * config.memory_share),
                100 * config.memory_share,
                _gb_text(use.capacity_bytes),
                result.search_s,
            )
    elif ranks.rank == 0:
        log.info("num_microbatches: auto takes %d, as an earlier attempt found", number)
    return replace(config, num_microbatches=number)


def _check_choices(values: Any) -> dict[str, Any]:
    """Check the fields of the choices, by kind of batching, or raise."""
    return {
        kind: {**choice, "key": choice["key"], "num_microbatches": int(choice["num_microbatches"])}
        for kind, choice in values.items()
    }


def _gb_text(num_bytes: float) -> str:
    """Return `0.0123 GB`, `61.2 GB`, `1,230 GB`: no exponent, whatever the size."""
    size = num_bytes / GB
    return f"{size:,.0f} GB" if size >= 100 else f"{size:.3g} GB"
