"""Order of overrides and matrices: overrides applied before and after the expansion. PURE.

`stages.train.retries=1` changes the stage in the file; `stages.train-2.retries=1` changes one of
the combinations that it becomes. A resume that reads the file again applies the overrides that were
set earlier for its run. Those of stages that no longer exist are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.matrices.matrix import expand_matrix
from slurm_jobs.spec.matrices.matrix_changes import with_changed_matrices
from slurm_jobs.spec.overrides import apply_overrides, lacks_stage, source_of, steps_of
from slurm_jobs.spec.plain_text import printable
from slurm_jobs.spec.yaml_values import YamlDocument


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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Given:
    text: str
    is_earlier: bool
    is_covered: bool
    """True if a later override sets the same key, or one above it."""


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
    given = _given(earlier, overrides)
    dropped: dict[int, str | None] = {}
    late = []
    for number, one in enumerate(given):
        no_stage = lacks_stage(document.value, steps_of(one.text))
        if no_stage and not (one.is_earlier and one.is_covered):
            late.append(number)
            continue
        document, dropped[number] = _put(document, one)
    expanded, origins = expand_matrix(document)
    document = expanded
    for number in late:
        document, dropped[number] = _put(document, given[number])
    document = with_changed_matrices(
        expanded,
        document,
        lambda name: f"`{name}` is one combination; set stages.{origins.get(name, name)}.matrix",
    )
    return Expanded(
        document=document,
        origins=origins,
        overrides=tuple(one.text for number, one in enumerate(given) if dropped[number] is None),
        left_out=tuple(_left_out(given[n].text, why) for n, why in sorted(dropped.items()) if why),
    )


def marked_earlier(
    problems: Sequence[Problem], earlier: Sequence[str], overrides: Sequence[str]
) -> list[Problem]:
    """Return the problems; those of earlier overrides also say so, with a remedy."""
    keys = {source_of(text): ".".join(steps_of(text)) for text in earlier}
    for text in overrides:
        keys.pop(source_of(text), None)
    return [
        dataclasses.replace(problem, message=f"{problem.message}; {_way_out(keys[problem.file])}")
        if problem.file in keys
        else problem
        for problem in problems
    ]


def _way_out(key: str) -> str:
    return (
        "this was set earlier for this run, and is put into the file again: replace it with "
        f"--set {key}=..., or set a key above it"
    )


def _given(earlier: Sequence[str], overrides: Sequence[str]) -> list[_Given]:
    texts = [*earlier, *overrides]
    keys = [steps_of(text) for text in texts]
    return [
        _Given(
            text=text,
            is_earlier=number < len(earlier),
            is_covered=any(keys[number][: len(k)] == k for k in keys[number + 1 :]),
        )
        for number, text in enumerate(texts)
    ]


def _put(document: YamlDocument, given: _Given) -> tuple[YamlDocument, str | None]:
    """Apply an override; on failure return the document and why an earlier one has no place.

    If a later override replaces the earlier one, the reason is empty.
    """
    changed = apply_overrides(document, [given.text])
    if not given.is_earlier or changed.problems == document.problems:
        return changed, None
    if given.is_covered:
        return document, ""
    if lacks_stage(document.value, steps_of(given.text)):
        return document, changed.problems[-1].message
    return changed, None


def _left_out(override: str, why: str) -> str:
    """Describe an override that is left out, without its value, which may be a secret."""
    key = printable(".".join(steps_of(override)))
    return f"--set {key}=..., which was set earlier for this run, is left out: {why}"
