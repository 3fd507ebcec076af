"""Order of overrides and matrices: overrides applied before and after the expansion.

`stages.train.retries=1` changes the stage in the file; `stages.train-2.retries=1` changes one of
the combinations that it becomes. A resume that reads the file again applies the overrides that
were set earlier for its run. Those of stages that no longer exist are left out. PURE.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.written_values import printable
from slurm_jobs.spec.matrix import expand_matrix
from slurm_jobs.spec.overrides.apply import apply_overrides, lacks_stage, source_of, steps_of
from slurm_jobs.spec.yaml.document import YamlDocument, problem_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Expanded:
    """Document with overrides, in which combinations are stages."""

    document: YamlDocument
    origins: Mapping[str, str]
    """Name in the file of each combination."""
    overrides: tuple[str, ...]
    """Overrides that were applied, in order."""
    left_out: tuple[str, ...]
    """Descriptions of earlier overrides whose stage no longer exists."""


def expand_with(
    document: YamlDocument, overrides: Sequence[str], *, earlier: Sequence[str] = ()
) -> Expanded:
    """Return the document with overrides applied and matrices expanded.

    Problems are added to the document.

    Args:
        document: content of the file.
        overrides: of this command; one that names no stage is a problem.
        earlier: set before `overrides`, when the file may have been another.
    """
    texts = [*earlier, *overrides]
    keys = [steps_of(text) for text in texts]
    dropped: dict[int, str] = {}
    """Why an earlier override has no place; empty if a later one sets its key or one above it."""

    def put(document: YamlDocument, number: int) -> YamlDocument:
        changed = apply_overrides(document, [texts[number]])
        if number >= len(earlier) or changed.problems == document.problems:
            return changed
        if is_covered[number]:
            dropped[number] = ""
        elif lacks_stage(document.value, keys[number]):
            dropped[number] = changed.problems[-1].message
        return document if number in dropped else changed

    is_covered = [any(steps[: len(k)] == k for k in keys[n + 1 :]) for n, steps in enumerate(keys)]
    late = []
    for number, steps in enumerate(keys):
        if lacks_stage(document.value, steps) and not (
            number < len(earlier) and is_covered[number]
        ):
            late.append(number)
        else:
            document = put(document, number)
    expanded, origins = expand_matrix(document)
    document = expanded
    for number in late:
        document = put(document, number)
    document = with_changed_matrices(
        expanded,
        document,
        lambda name: f"`{name}` is one combination; set stages.{origins.get(name, name)}.matrix",
    )
    return Expanded(
        document=document,
        origins=origins,
        overrides=tuple(text for number, text in enumerate(texts) if number not in dropped),
        left_out=tuple(  # without their values, which may be secrets
            f"--set {printable('.'.join(keys[number]))}=..., which was set earlier for this run, "
            f"is left out: {why}"
            for number, why in sorted(dropped.items())
            if why
        ),
    )


def marked_earlier(
    problems: Sequence[Problem], earlier: Sequence[str], overrides: Sequence[str]
) -> list[Problem]:
    """Return the problems; those of earlier overrides have a remedy too."""
    keys = {source_of(text): ".".join(steps_of(text)) for text in earlier}
    for text in overrides:
        keys.pop(source_of(text), None)
    remedies = {
        source: (
            "; this was set earlier for this run, and is put into the file again: replace it with "
            f"--set {key}=..., or set a key above it"
        )
        for source, key in keys.items()
    }
    return [
        problem.changed(message=problem.message + remedies.get(problem.file, ""))
        for problem in problems
    ]


def with_changed_matrices(
    before: YamlDocument, after: YamlDocument, message_for: Callable[[str], str]
) -> YamlDocument:
    """Return `after` with a problem for each stage whose matrix differs from that in `before`.

    Such a matrix would not be expanded: the stage would run once, as if it had none.

    Args:
        before: the expanded document.
        after: the same with overrides.
        message_for: message with remedy, for the name of a stage.
    """
    known = _matrices(before)
    problems = [
        problem_at(after, ("stages", name, "matrix"), f"stages.{name}.matrix: {message_for(name)}")
        for name, matrix in _matrices(after).items()
        if matrix != known.get(name, "null")
    ]
    return dataclasses.replace(after, problems=(*after.problems, *problems))


def _matrices(document: YamlDocument) -> dict[str, str]:
    """Return the matrix of each stage as JSON, in which 1, true and 1.0 differ."""
    stages: Any = document.value.get("stages") if isinstance(document.value, dict) else None
    return {
        name: json.dumps(stage.get("matrix"), sort_keys=True)
        for name, stage in (stages.items() if isinstance(stages, dict) else ())
        if isinstance(stage, dict)
    }
