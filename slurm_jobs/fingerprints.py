"""Hashes of everything that determines a stage's output, key by key. PURE.

While all are equal, completed work is reusable. They are kept by key so that a resume can name the
field because of which a stage runs again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slurm_jobs.spec.model import RunSpec, Stage

_ADDED_LATER = frozenset({"config.images_within", "config.evaluate.images_within"})
"""Keys that runs of an older version do not have: if missing (None), they are ignored."""

PARENT = "after."
"""Prefix of the keys that hold a parent's fingerprint."""


def deciding_fields(
    stage: Stage, spec: RunSpec, parents: Mapping[str, str], code_fingerprint: str
) -> Mapping[str, str]:
    """Return hashes of all values that determine a stage's output, by key.

    Where all are equal, finished work is reusable.
    """
    own_code = stage.run is None or ":" in stage.run
    values: dict[str, Any] = {
        "run": stage.run,
        "shell": stage.shell,
        "array.num_slices": stage.array.num_slices if stage.array else None,
        "limit": spec.limit,
        "code": code_fingerprint if own_code else "",
        **({"matrix": stage.matrix} if stage.matrix else {}),
        **_by_key("config", stage.config),
        **_by_key("environment", {**spec.environment, **stage.environment}),
        **{f"{PARENT}{parent}": parents[parent] for parent in stage.after},
    }
    decide = {k: v for k, v in values.items() if v is not None or k not in _ADDED_LATER}
    return {key: hash_of(decide[key]) for key in sorted(decide)}


def _by_key(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings: `{"config.a.b": 1}`; an empty one keeps its key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        flat.update(_by_key(name, value) if isinstance(value, Mapping) and value else {name: value})
    return flat


def hash_of(values: Any) -> str:
    """Return a hash that is equal for equal JSON values, regardless of the order of keys."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


def changed_fields(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the keys of the stage itself (not of its parents) that differ between two `fields`."""
    keys = sorted({*before, *now})
    return [k for k in keys if not k.startswith(PARENT) and before.get(k) != now.get(k)]


def parents_of(fields: Mapping[str, str]) -> set[str]:
    """Return the parents of a stage with these `fields`."""
    return {key.removeprefix(PARENT) for key in fields if key.startswith(PARENT)}
