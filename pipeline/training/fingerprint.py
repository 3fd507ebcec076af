"""Part of a config that must not change for a checkpoint to be continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slurm_jobs.common.stage_config.train import MAY_CHANGE, TrainConfig


def lasting_config(config: TrainConfig, num_steps: int) -> dict[str, Any]:
    """Return the part of the config that must not change between attempts, as JSON values."""
    values = asdict(config)
    for name in (*MAY_CHANGE, "num_epochs"):
        del values[name]
    # As in a checkpoint's file: tuples become lists.
    return json.loads(json.dumps({**values, "num_steps": num_steps}))


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return a fingerprint that is equal for equal values, whatever their order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return `optimizer.learning_rate: 0.1 then, 0.2 now` for every value that differs."""
    then, now = _flatten(before), _flatten(after)
    missing = "(not there)"
    return [
        f"{key}: {then.get(key, missing)} then, {now.get(key, missing)} now"
        for key in sorted(then.keys() | now.keys())
        if then.get(key, missing) != now.get(key, missing)
    ]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
