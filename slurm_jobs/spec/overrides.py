"""Values from the command line: `--set stages.train.resources.nodes=1`. PURE."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.spec.matrices.matrix_names import origin_of
from slurm_jobs.spec.plain_text import printable
from slurm_jobs.spec.yaml_values import Path, Place, YamlDocument, read_yaml


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


def lacks_stage(value: Any, steps: Sequence[str]) -> bool:
    """Check whether the keys lead into a stage that `value` lacks; a whole new stage is allowed."""
    stages = value.get("stages") if isinstance(value, dict) else None
    known = {} if stages is None else stages
    leads_into = steps[0] == "stages" and len(steps) > 2
    return leads_into and isinstance(known, dict) and steps[1] not in known


def _apply(document: YamlDocument, override: str) -> YamlDocument:
    _, equals, text = override.partition("=")
    source = source_of(override)
    steps = steps_of(override)
    if not equals or not all(steps):
        message = "write KEY.KEY=VALUE, such as stages.train.resources.nodes=1"
        return _with_problem(document, source, message)
    parsed = read_yaml(text, source, key=steps[-1])
    if parsed.problems:
        moved = tuple(dataclasses.replace(p, line=0) for p in parsed.problems)
        return dataclasses.replace(document, problems=(*document.problems, *moved))
    value = copy.deepcopy(document.value)
    try:
        path = _put(value, steps, parsed.value)
    except LookupError as error:
        return _with_problem(document, source, str(error.args[0]))
    return _moved(document, value, path, source)


def _put(holder: Any, steps: Sequence[str], value: Any) -> Path:
    """Put `value` into `holder`; create missing mappings on the way.

    Returns:
        Path of the first thing that was created: the value, or its container.

    Raises:
        LookupError: a value on the way has no such key.
    """
    if lacks_stage(holder, steps):
        raise LookupError(_no_stage(holder.get("stages") or {}, steps))
    path: Path = ()
    made: Path | None = None
    for i, step in enumerate(steps):
        index = _index(holder, step, ".".join(steps[:i]) or "the file")
        path = (*path, index)
        is_last = i == len(steps) - 1
        if is_last or _at(holder, index) is None:
            made = path if made is None else made
            _set(holder, index, value if is_last else _container(steps[i + 1]))
        holder = _at(holder, index)
    assert made is not None
    return made


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


def _container(next_step: str) -> Any:
    """Return the container of `next_step`: a list if that is its first place."""
    return [] if next_step == "0" else {}


def _at(holder: Any, index: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(index)
    return holder[index] if index < len(holder) else None


def _set(holder: Any, index: Any, value: Any) -> None:
    if isinstance(holder, list) and index == len(holder):
        holder.append(value)
    else:
        holder[index] = value


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


def _moved(document: YamlDocument, value: Any, path: Path, source: str) -> YamlDocument:
    """Assign the places at and under `path` to the command line: line 0."""
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
