"""Stage names and `--set` keys of the spec or run on the line, which a TAB offers.

Keys come from the JSON Schema that ships for editors, because importing the models takes 0.25 s,
and from what the spec itself has where a key may have any name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import SlurmJobsError

_WORD = re.compile(r"[A-Za-z0-9][\w-]*", re.ASCII)
"""What needs no quotes in a shell, and can be a step in a key of `--set`."""


def stage_names(target: str | None) -> list[str]:
    """Return the names of the stages of a spec or run."""
    return _words(_mapping(_read_spec(target).get("stages")))


def set_keys(prefix: str, target: str | None) -> list[str]:
    """Return the next steps of a `KEY=VALUE` for a spec or run, or its values after the `=`.

    A step ends in a dot, the last one in `=`. A single step is followed by the ones below it,
    because shells add a blank to a single word that ends in a dot.
    """
    from slurm_jobs.base.shipped_files import shipped_text

    spec = _read_spec(target)
    schema = _Schema(json.loads(shipped_text("templates", "schema", "spec.schema.json")), spec)
    path, equals, _ = prefix.partition("=")
    if equals:
        return [f"{path}={value}" for value in schema.values_at(path.split("."))]
    above = prefix.rpartition(".")[0]
    keys = [key for key in schema.keys_below(above) if key.startswith(prefix)]
    while len(keys) == 1 and keys[0].endswith("."):
        above = keys[0].removesuffix(".")
        keys = schema.keys_below(above) or [f"{above}=", f"{above}."]
    return keys


def _read_spec(target: str | None) -> Mapping[str, Any]:
    """Return the values of a spec or run; empty if there is none that can be read."""
    if target is None:
        return {}
    with suppress(SlurmJobsError, OSError, ValueError):
        if target.endswith((".yaml", ".yml")):
            from slurm_jobs.base.regular_files import read_text
            from slurm_jobs.spec.yaml.reader import read_yaml

            return _mapping(read_yaml(read_text(Path(target).expanduser()), target).value)
        from slurm_jobs.commands.run_search.find_run import find_run
        from slurm_jobs.run_folder.paths import RunPaths
        from slurm_jobs.run_folder.resolved_spec import read_resolved_values

        return read_resolved_values(RunPaths(find_run(target)))
    return {}


class _Schema:
    """Schema of specs, with the values of one spec."""

    def __init__(self, schema: dict[str, Any], spec: Mapping[str, Any]) -> None:
        self._schema, self._definitions, self._spec = schema, schema["$defs"], spec

    def keys_below(self, path: str) -> list[str]:
        """Return `path` with each key below it; with `=` if no key can be below that one."""
        steps = path.split(".") if path else []
        below = self._fields(self._at(steps))
        keys = dict.fromkeys([*below, *_words(_value_at(self._spec, steps))])
        before = f"{path}." if path else ""
        return [f"{before}{key}{self._mark([*steps, key])}" for key in keys]

    def values_at(self, steps: list[str]) -> list[str]:
        """Return the values of a key that has few."""
        return [value for branch in self._branches(self._at(steps)) for value in _few(branch)]

    def _mark(self, steps: list[str]) -> str:
        is_mapping = any(
            branch.get("type") == "object" for branch in self._branches(self._at(steps))
        )
        is_mapping = is_mapping or isinstance(_value_at(self._spec, steps), Mapping)
        return "." if is_mapping else "="

    def _at(self, steps: list[str]) -> Mapping[str, Any]:
        """Return the schema of the value at the end of the steps; empty if any value is allowed."""
        schema: Mapping[str, Any] = self._schema
        for number, step in enumerate(steps):
            schema = self._fields(schema).get(step) or self._of_any_key(schema)
            if number == 2 and (steps[0], step) == ("stages", "config"):
                builtin = _value_at(self._spec, [*steps[:2], "run"])
                schema = self._definitions.get(f"{str(builtin).capitalize()}Config", schema)
        return schema

    def _fields(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schemas of the known keys."""
        branches = self._branches(schema)
        return {key: s for branch in branches for key, s in branch.get("properties", {}).items()}

    def _of_any_key(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema of a key that the user names."""
        for branch in self._branches(schema):
            for inner in branch.get("patternProperties", {}).values():
                return _mapping(inner)
        return {}

    def _branches(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the alternatives of a schema, with references followed."""
        if "$ref" in schema:
            return self._branches(self._definitions[schema["$ref"].rpartition("/")[2]])
        if "anyOf" not in schema:
            return [schema]
        return [branch for inner in schema["anyOf"] for branch in self._branches(inner)]


def _few(schema: Mapping[str, Any]) -> list[str]:
    if schema.get("type") == "boolean":
        return ["true", "false"]
    return [str(value) for value in [*schema.get("enum", []), *filter(None, [schema.get("const")])]]


def _value_at(values: Any, steps: list[str]) -> Any:
    for step in steps:
        values = _mapping(values).get(step)
    return values


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _words(values: Any) -> list[str]:
    """Return the keys of a mapping that are words."""
    return [key for key in _mapping(values) if isinstance(key, str) and _WORD.fullmatch(key)]
