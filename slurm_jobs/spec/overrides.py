"""Values from the command line: `--set stages.train.resources.nodes=1`. PURE."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.yaml_values import Path, Place, YamlDocument, read_yaml


def apply_overrides(document: YamlDocument, overrides: Sequence[str]) -> YamlDocument:
    """The document with each `KEY.KEY=VALUE` put in; VALUE is read as YAML.

    What is wrong with a value that came from here is reported at `--set ...`.
    """
    for override in overrides:
        document = _apply(document, override)
    return document


def _apply(document: YamlDocument, override: str) -> YamlDocument:
    key, equals, text = override.partition("=")
    source = f"--set {override}"
    if not equals or not key:
        message = "write KEY.KEY=VALUE, such as stages.train.resources.nodes=1"
        return _with_problem(document, source, message)
    parsed = read_yaml(text, source)
    if parsed.problems:
        moved = tuple(dataclasses.replace(p, line=0) for p in parsed.problems)
        return dataclasses.replace(document, problems=(*document.problems, *moved))
    value = copy.deepcopy(document.value)
    path: Path = ()
    holder: Any = value
    steps = key.split(".")
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        index = _index(holder, step)
        if index is None:
            where = ".".join(steps[:i]) or "the file"
            return _with_problem(document, source, f"`{where}` holds no keys, so `{step}` has no place")
        if last:
            holder[index] = parsed.value
        elif isinstance(holder, dict):
            holder = holder.setdefault(index, {})
        else:
            holder = holder[index]
        path = (*path, index)
    return _moved(document, value, path, source)


def _index(holder: Any, step: str) -> str | int | None:
    if isinstance(holder, dict):
        return step
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        return int(step)
    return None


def _moved(document: YamlDocument, value: Any, path: Path, source: str) -> YamlDocument:
    """Places at and under `path` now belong to the command line: line 0."""
    place = Place(line=0, column=0)

    def outside(places: dict[Path, Place]) -> dict[Path, Place]:
        kept = {p: v for p, v in places.items() if p[: len(path)] != path}
        return {**kept, path: place}

    return dataclasses.replace(
        document,
        value=value,
        key_places=outside(document.key_places),
        value_places=outside(document.value_places),
        sources={**document.sources, path: source},
    )


def _with_problem(document: YamlDocument, source: str, message: str) -> YamlDocument:
    problem = Problem(file=source, line=0, column=0, message=message)
    return dataclasses.replace(document, problems=(*document.problems, problem))
