"""Whether patterns of linear layers can match any; `pipeline.models.linear_layers` has them. PURE.

Names of layers are looked for in the index of the weights, where a model lies here and has one.
Loading changes how these names begin, in some families, and never the last word of them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import stage_views
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import did_you_mean, path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_LANGUAGE, _HEAD = "language", "lm_head"
"""The word for all layers of the language model; and the one layer whose full name has no dot,
which the weights leave out where it is the embeddings."""
_WORD = re.compile(r"[\w-]*")
"""Full names of layers have dots, and patterns of them a `*`, `?` or `[`."""
_KEYS = (("adapters", "targets"), ("quantize", "targets"), ("quantize", "skip"))
_MODEL: Path = ("config", "model", "path")
_INDEX = "model.safetensors.index.json"
_MOST_NAMES = 8


def target_problems(
    document: YamlDocument, marked: Sequence[MarkedString], files: Files
) -> list[Problem]:
    """Patterns that match no layer of any model, or none of the stage's own, each at its place."""
    folders = {item.path[1]: item.resolved for item in marked if item.path[2:] == _MODEL}
    problems = []
    for name, view in stage_views(document.value).items():
        if view.run != "train":
            continue
        words = _last_words(folders.get(name), files)
        for place, pattern in _patterns(view.config or {}):
            path = ("stages", name, "config", *place)
            wrong = _wrong(pattern, words)
            if wrong:
                message = f"{path_text(path)}: {pattern!r} {wrong}"
                problems.append(problem_at(document, path, message))
    return problems


def _patterns(config: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Where each pattern stands below the config; values of other kinds are told elsewhere."""
    for key, inner in _KEYS:
        values = config.get(key)
        given = values.get(inner) if isinstance(values, Mapping) else None
        for number, pattern in enumerate(given if isinstance(given, list) else ()):
            if isinstance(pattern, str):
                yield (key, inner, number), pattern


def _last_words(folder: str | None, files: Files) -> frozenset[str]:
    """Last words of the names of all layers; empty where nobody can say."""
    if folder is None or not files.holds(f"{folder}/{_INDEX}"):
        return frozenset()
    try:
        values = json.loads(files.read_text(f"{folder}/{_INDEX}"))
    except (OSError, ValueError, RecursionError):
        return frozenset()
    weights = values.get("weight_map") if isinstance(values, dict) else None
    names = weights if isinstance(weights, dict) else {}
    found = {name.split(".")[-2] for name in names if name.endswith(".weight")}
    return frozenset({*found, _HEAD} if found else ())


def _wrong(pattern: str, words: Collection[str]) -> str:
    """What to say after the pattern; nothing if it may match."""
    if pattern in {_LANGUAGE, _HEAD}:
        return ""
    if _WORD.fullmatch(pattern):
        near = difflib.get_close_matches(pattern, [_LANGUAGE], n=1)
        meant = near[0] if near else f"*.{pattern or 'q_proj'}"
        return (
            f"names no linear layer: full names have dots (model.visual.blocks.0.attn.qkv); give "
            f"`{_LANGUAGE}`, or a pattern of full names; did you mean `{meant}`?"
        )
    end = re.split(r"[*?\[\]]", pattern)[-1]
    last = end.rpartition(".")[2]
    is_whole = "." in end
    if not words or not last:
        return ""
    if any(word == last if is_whole else word.endswith(last) for word in words):
        return ""
    some = ", ".join(sorted(words)[:_MOST_NAMES])
    return (
        f"matches no layer of the model: none ends with `{last}`{did_you_mean(last, words)} "
        f"(some that there are: {some})"
    )
