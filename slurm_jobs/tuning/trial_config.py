"""Config of one trial, from the config of a training."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.base.files import plain_json
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.command_stages import TuneConfig
from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_phases import as_training
from slurm_jobs.tuning.trial_model import Ask, Change

READ_EVERY_S = 0.25
"""Trials are short, and the report's rules on node load need ten readings."""
_PROFILED_STEPS = 4


def base_config(tune: TuneConfig) -> dict[str, Any]:
    """Return the training, or its phase to tune: all its keys, as JSON values."""
    train = build_config(TrainConfig, tune.train)
    config = train if tune.phase is None else as_training(train, tune.phase)
    values: dict[str, Any] = plain_json(asdict(config))
    return values


def with_changes(train: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return a copy with `changes`; the last one of a key counts."""
    changed = copy.deepcopy(dict(train))
    for change in changes:
        *parents, last = change.key.split(".")
        values = changed
        for name in parents:
            values = values[name]
        values[last] = copy.deepcopy(change.value)
    return changed


def problem_with(train: Mapping[str, Any], changes: Sequence[Change]) -> str:
    """Return why the training cannot be changed in this way; empty if it can."""
    try:
        build_config(TrainConfig, with_changes(train, changes))
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def measure_config(train: Mapping[str, Any], ask: Ask, *, num_ranks: int) -> dict[str, Any]:
    """Return the config of `pipeline.train.measure`: steps without checkpoints.

    Staging precedes the first step, so that steps read the staged copy. The probe profiles some
    steps if ranks communicate.
    """
    changed = with_changes(train, ask.changes)
    staging, sampler = changed["staging"], changed["sampler"]
    every_s = min(sampler["every_s"] or READ_EVERY_S, READ_EVERY_S)
    is_profiled = ask.purpose == "probe" and num_ranks > 1
    steps = [ask.num_steps - _PROFILED_STEPS, ask.num_steps - 1] if is_profiled else None
    return {
        "num_kept_steps": ask.num_kept_steps,
        "num_dropped_steps": ask.num_dropped_steps,
        "drop_before": WARMUP_STEPS - 1,
        "train": {
            **changed,
            "num_steps": ask.num_steps,
            "num_epochs": None,
            "checkpoint": {"every_min": None},
            "evaluate": {},
            "trackers": {},
            "profile": {"steps": steps},
            "sampler": {**sampler, "every_s": every_s},
            "staging": {**staging, "mode": "before"} if staging["mode"] == "beside" else staging,
            "log_every_steps": ask.num_steps,
        },
    }
