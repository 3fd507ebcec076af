"""Part of a config that must not change for a checkpoint to be continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from slurm_jobs.formats.configs.train import MAY_CHANGE, TrainConfig


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
    then, now = dict(_flatten(before)), dict(_flatten(after))
    missing = "(not there)"
    values = {key: (then.get(key, missing), now.get(key, missing)) for key in then.keys() | now}
    return [f"{key}: {a} then, {b} now" for key, (a, b) in sorted(values.items()) if a != b]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
