"""Overrides and matrices: what is put in before they are expanded, and what after. PURE.

`stages.train.retries=1` is put into the stage that the file has; `stages.train-2.retries=1` into
one of the combinations that it becomes. A resume that reads the file anew puts in again what was
set earlier for its run; of that, what names a stage that is no more is left out.
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
    """A document with overrides, in which combinations are stages."""

    document: YamlDocument
    origins: Mapping[str, str]
    """The name in the file of each combination."""
    overrides: tuple[str, ...]
    """Those that were put in, in order."""
    left_out: tuple[str, ...]
    """In words, what was set earlier and has no stage any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Given:
    text: str
    is_earlier: bool
    is_covered: bool
    """One after it sets the same key, or one above it."""


def expand_with(
    document: YamlDocument, overrides: Sequence[str], *, earlier: Sequence[str] = ()
) -> Expanded:
    """The document with overrides and its matrices expanded.

    What is wrong is added to the document's problems.

    Args:
        document: as the file says.
        overrides: as they were typed; one that names no stage is a problem.
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
    """Problems, of which those with what was only set earlier say so and how to be rid of it."""
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
    """The document with an override; or as it is, and why an earlier one has no place in it.

    No reason is needed where another has replaced it: that is empty.
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
    """Without the value, which may be a secret."""
    key = printable(".".join(steps_of(override)))
    return f"--set {key}=..., which was said earlier for this run, is left out: {why}"
