"""`num_microbatches: auto`: searched for once, and stored next to the checkpoints.

The number changes the last bits of the results, not the samples of a step. So attempts on the
same number of ranks and the same kind of devices reuse the stored number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.training import peak_memory
from pipeline.training.microbatch_search import GB, Found, search
from pipeline.training.trial import Trial
from slurm_jobs.common.files import write_json_atomic
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)

CHOICE_NAME = "microbatches.json"
_DECIDE = (
    *("strategy", "accelerate", "sharding", "deterministic", "num_steps", "num_epochs"),
    *("optimizer", "memory_share", "activation_checkpointing", "compile"),
)
"""Fields of the config on which the number depends, too."""


def settle_microbatches(trial: Trial, folder: Path) -> TrainConfig:
    """Return the config with a number of microbatches; a collective if it is searched for.

    `folder` stores it, by kind of batching.

    Raises:
        StageConfigError: a single row does not fit in memory.
    """
    config, ranks = trial.config, trial.ranks
    if config.num_microbatches != "auto":
        return config
    capacity = peak_memory.read_capacity(trial.workplace.device, trial.num_local_ranks)
    devices = ranks.gather(_describe(trial.workplace.device, capacity))
    file, kind, key = folder / CHOICE_NAME, config.batching.kind, _key(trial, devices)
    choices = _read_choices(file) if ranks.rank == 0 else {}
    kept = choices.get(kind, {"key": None})
    number = ranks.from_main(kept["num_microbatches"] if kept["key"] == key else None)
    if number is None:
        with trial.spans.span("microbatch_search") as notes:
            found = search(trial, capacity)
            notes |= {"num_microbatches": found.num_microbatches, "batching": kind}
        number = found.num_microbatches
        if ranks.rank == 0:
            write_json_atomic(file, {**choices, kind: {"key": key, **asdict(found)}})
            _announce(found, config)
    elif ranks.rank == 0:
        log.info("num_microbatches: auto takes %d, as an earlier attempt found", number)
    return replace(config, num_microbatches=number)


def _key(trial: Trial, devices: Sequence[str]) -> dict[str, Any]:
    """Return what another attempt must have in common, as JSON values; used only on rank 0."""
    key = trial.describe(*_DECIDE) | {
        "precision": trial.workplace.precision,
        "spread": asdict(trial.strategy.facts(trial.spread)),  # a file of accelerate may change
        "num_ranks": trial.ranks.num_ranks,
        "devices": sorted(set(devices)),
    }
    found: dict[str, Any] = json.loads(json.dumps(key))
    return found


def _describe(device: torch.device, capacity_bytes: float) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}, {capacity_bytes / GB:.1f} GB"


def _read_choices(file: Path) -> Mapping[str, Any]:
    """Read the choices by kind of batching; empty if unreadable."""
    try:
        kept = json.loads(file.read_bytes())
        return {kind: _checked(choice) for kind, choice in kept.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is damaged (%r): num_microbatches is searched for again", file, error)
        return {}


def _checked(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the choice if its fields are valid.

    Raises:
        KeyError, ValueError, TypeError: a field is missing or not a number.
    """
    return {**choice, "key": choice["key"], "num_microbatches": int(choice["num_microbatches"])}


def _announce(found: Found, config: TrainConfig) -> None:
    number, num_rows = found.num_microbatches, found.num_rows
    allowed_bytes = found.use.capacity_bytes * config.memory_share
    log.info(
        "num_microbatches: auto takes %s of %s a step on each rank (batching: %s): the heaviest "
        "needs %s of the %s that memory_share allows (%.0f %% of %s); found in %.1f s",
        f"{number:,} microbatch{'' if number == 1 else 'es'}",
        f"{num_rows:,} row{'' if num_rows == 1 else 's'}",
        config.batching.kind,
        _gb_text(found.use.peak_bytes),
        _gb_text(allowed_bytes),
        100 * config.memory_share,
        _gb_text(found.use.capacity_bytes),
        found.search_s,
    )


def _gb_text(num_bytes: float) -> str:
    """Return `0.0123 GB`, `61.2 GB`, `1,230 GB`: no exponent, whatever the size."""
    size = num_bytes / GB
    return f"{size:,.0f} GB" if size >= 100 else f"{size:.3g} GB"
