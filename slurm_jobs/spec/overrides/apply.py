"""Values from the command line: `--set stages.train.resources.nodes=1`. PURE."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.written_values import printable
from slurm_jobs.spec.combinations import origin_of
from slurm_jobs.spec.stage_views import stage_views
from slurm_jobs.spec.yaml.document import KeyPath, Place, YamlDocument, problem_at
from slurm_jobs.spec.yaml.reader import read_yaml


def apply_overrides(document: YamlDocument, overrides: Sequence[str]) -> YamlDocument:
    """Return the document with each `KEY.KEY=VALUE` applied; VALUE is parsed as YAML."""
    for override in overrides:
        document = _apply(document, override)
    return document


def steps_of(override: str) -> list[str]:
    """Return the keys on the way to the value: `stages.train.retries=1` has three."""
    return override.partition("=")[0].strip().split(".")


def sets_value(override: str, path: Sequence[str]) -> bool:
    """Check whether the override sets the value at `path`: alone, or as a part of a mapping."""
    steps = steps_of(override)
    if list(path[: len(steps)]) != steps:
        return False
    value = read_yaml(override.partition("=")[2], source_of(override)).value
    for key in path[len(steps) :]:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def source_of(override: str) -> str:
    """Return the source that problems with its value name."""
    return printable(f"--set {override}")


def lacks_stage(value: Any, steps: Sequence[str | int]) -> bool:
    """Check whether the keys lead into a stage that `value` lacks; a whole new stage is allowed."""
    stages = value.get("stages") if isinstance(value, dict) else None
    known = {} if stages is None else stages
    leads_into = len(steps) > 2 and steps[0] == "stages"
    return leads_into and isinstance(known, dict) and steps[1] not in known


def _apply(document: YamlDocument, override: str) -> YamlDocument:
    _, equals, text = override.partition("=")
    source, steps = source_of(override), steps_of(override)
    message = ""
    if not equals or not all(steps):
        message = "write KEY.KEY=VALUE, such as stages.train.resources.nodes=1"
    else:
        parsed = read_yaml(text, source, key=steps[-1])
        if parsed.problems:
            moved = tuple(p.changed(line=0) for p in parsed.problems)
            return dataclasses.replace(document, problems=(*document.problems, *moved))
        value = copy.deepcopy(document.value)
        try:
            path = _put(value, steps, parsed.value)
        except LookupError as error:
            message = str(error.args[0])
    if message:
        problem = Problem(file=source, line=0, column=0, message=message, path=tuple(steps))
        return dataclasses.replace(document, problems=(*document.problems, problem))
    # The places at and under `path` are those of the command line: line 0.
    place = {path: Place(line=0, column=0)}
    depth = len(path)
    return dataclasses.replace(
        document,
        value=value,
        key_places={p: v for p, v in document.key_places.items() if p[:depth] != path} | place,
        value_places={p: v for p, v in document.value_places.items() if p[:depth] != path} | place,
        sources={**document.sources, path: source},
    )


def _put(holder: Any, steps: Sequence[str], value: Any) -> KeyPath:
    """Put `value` into `holder`; create missing mappings and lists on the way.

    Returns:
        Path of the first thing that was created: the value, or its container.

    Raises:
        LookupError: a value on the way has no such key.
    """
    if lacks_stage(holder, steps):
        raise LookupError(_no_stage(holder.get("stages") or {}, steps))
    path: KeyPath = ()
    created: KeyPath = ()
    for i, step in enumerate(steps):
        index: Any = _index(holder, step, ".".join(steps[:i]) or "the file")
        path = (*path, index)
        is_new = isinstance(holder, list) and index == len(holder)
        below = None
        if not is_new:
            below = holder.get(index) if isinstance(holder, dict) else holder[index]
        if i == len(steps) - 1 or below is None:
            created = created or path
            container: Any = [] if steps[i + 1 : i + 2] == ["0"] else {}
            below = value if i == len(steps) - 1 else container
            if is_new:
                holder.append(below)
            else:
                holder[index] = below
        holder = below
    return created


def _index(holder: Any, step: str, where: str) -> str | int:
    if isinstance(holder, dict):
        return step
    if not isinstance(holder, list):
        message = f"`{where}` holds no keys, so `{step}` has no place in it"
        raise LookupError(message)  # noqa: TRY004 - it is the user's key that is wrong
    if not step.isdecimal() or len(step) > 9 or int(step) > len(holder):
        message = (
            f"`{where}` is a list of {len(holder)}; `{step}` is none of its places "
            f"(from 0; {len(holder)} appends)"
        )
        raise LookupError(message)
    return int(step)


def _no_stage(stages: dict[str, Any], steps: Sequence[str]) -> str:
    """Return a message that there is no such stage; one with a matrix became its combinations."""
    name, rest = steps[1], ".".join(steps[2:])
    members = [
        member
        for member, stage in stages.items()
        if isinstance(stage, dict) and origin_of(member, stage.get("matrix")) == name
    ]
    if members:
        return (
            f"stage `{name}` has a matrix, and is its combinations by now: set each by its name "
            f"(--set stages.{members[0]}.{rest}=...; those are {', '.join(members)}), or all of "
            "them with --update-spec in addition, which reads the spec's file again"
        )
    return f"there is no stage `{name}`{did_you_mean(name, stages)} (stages: {', '.join(stages)})"


_WITHOUT_LIMIT = frozenset({"download", "consolidate", "train", "report"})
"""Built-in stages without a limit on samples."""


def override_problems(document: YamlDocument, typed: Collection[str]) -> list[Problem]:
    """Return a problem for a limit among the overrides just `typed` that no stage would use."""
    if not any(steps_of(override) == ["limit"] for override in typed):
        return []
    limit = document.value.get("limit") if isinstance(document.value, dict) else None
    views = stage_views(document.value).values()
    may_ask = [v for v in views if v.run not in _WITHOUT_LIMIT and v.keys.get("shell") is None]
    if not isinstance(limit, int) or may_ask or not views:
        return []
    message = (
        "limit: no stage of this spec takes it: `run: preprocess` takes so many samples of its "
        "manifest, and a function of yours may (`context.limit`); leave it out"
    )
    return [problem_at(document, ("limit",), message)]
