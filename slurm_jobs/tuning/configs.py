"""From a training's config to that of one trial: PURE."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.files import plain_json
from slurm_jobs.common.stage_config.phases import as_training
from slurm_jobs.common.stage_config.train import TrainConfig
from slurm_jobs.common.stage_config.tune import TuneConfig
from slurm_jobs.tuning.model import Ask, Change

WARMUP_STEPS = 5
"""Left out of every trial, as the report and `compare` do."""
READ_EVERY_S = 0.25
"""Trials are short: the report's rules on the load of nodes want ten readings."""
_PROFILED_STEPS = 4


def base_config(tune: TuneConfig) -> dict[str, Any]:
    """The training, or the phase of it, that is tried; all its keys, as JSON values."""
    train = build_config(TrainConfig, tune.train)
    one = train if tune.phase is None else as_training(train, tune.phase)
    values: dict[str, Any] = plain_json(asdict(one))
    return values


def with_changes(train: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """A copy with `changes` in it; those of a key that came later count."""
    changed = copy.deepcopy(dict(train))
    for change in changes:
        *parents, last = change.key.split(".")
        values = changed
        for name in parents:
            values = values[name]
        values[last] = copy.deepcopy(change.value)
    return changed


def problem_with(train: Mapping[str, Any], changes: Sequence[Change]) -> str:
    """Why the training cannot be changed so; empty if it can."""
    try:
        build_config(TrainConfig, with_changes(train, changes))
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def measure_config(train: Mapping[str, Any], ask: Ask, *, num_ranks: int) -> dict[str, Any]:
    """What `pipeline.training.measuring` is told: steps alone, none of them saved.

    Staging is done before the first step, so that steps are those of a copy that is there. The
    probe profiles some steps where ranks talk to each other.
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
