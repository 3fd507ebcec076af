"""Fingerprints of stages: hashes of all values that determine the output of a stage. PURE."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, is_dataclass
from typing import Any

from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.model_keys import with_keys
from slurm_jobs.spec.value_types import BUILTIN_STAGES

_ADDED_LATER = frozenset({"config.images_within", "config.evaluate.images_within"})
"""Keys that runs of an older version do not have: if missing (None), they are ignored."""

PARENT = "after."
"""Prefix of the keys that hold a parent's fingerprint."""


def deciding_fields(
    stage: Stage, spec: RunSpec, parents: Mapping[str, str], code_fingerprint: str
) -> Mapping[str, str]:
    """Return hashes of all values that determine a stage's output, by key.

    Where all are equal, finished work is reusable; else a resume names the keys that differ.
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


def without_new_defaults(spec: RunSpec, earlier: RunSpec) -> RunSpec:
    """Return the spec of a resume without the config keys that only today's version knows.

    The spec of a run made by an older version lacks the keys that were added since. While such a
    key has its default, it must not make finished work run again.
    """
    stages = dict(spec.stages)
    for name, stage in spec.stages.items():
        before = earlier.stages.get(name)
        if before is not None and before.run == stage.run and stage.run in BUILTIN_STAGES:
            config = _without_defaults(config_class(stage.run), stage.config, before.config)
            stages[name] = stage.model_copy(update={"config": config})
    return spec.model_copy(update={"stages": stages})


def _without_defaults(target: Any, config: Any, earlier: Any) -> Any:
    """Remove keys that `earlier` lacks and that have the default of `target`, a type with keys."""
    target = with_keys(target)
    if isinstance(config, list) and isinstance(earlier, list):
        (item, *_) = typing.get_args(target) or (Any,)
        common = [_without_defaults(item, *pair) for pair in zip(config, earlier, strict=False)]
        return [*common, *config[len(common) :]]
    if not (is_dataclass(target) and isinstance(config, dict) and isinstance(earlier, dict)):
        return config
    # Without the marks of `Annotated`, `SomeKeysOf` has no defaults here.
    hints = typing.get_type_hints(target)
    return {
        key: _without_defaults(hints[key], value, earlier[key]) if key in earlier else value
        for key, value in config.items()
        if key in earlier or value != _default(target, key)
    }


def _default(target: Any, key: str) -> Any:
    """Return a field's default as it is in a spec's JSON; MISSING if it has none."""
    (field,) = (each for each in dataclasses.fields(target) if each.name == key)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default if default is MISSING else json.loads(json.dumps(default, default=asdict))


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
