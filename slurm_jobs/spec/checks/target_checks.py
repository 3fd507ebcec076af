"""Check that patterns of linear layers match some, as `pipeline.models.linear_layers` does. PURE.

Layer names come from the index of the weights, if a model is here and has one. In some families
loading changes how these names begin, but never their last word.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.common.model_kinds import MODEL_CONFIG, SMALL_VLM
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import stage_views
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_LANGUAGE, _HEAD = "language", "lm_head"
"""Word for all layers of the language model; and the one layer whose full name has no dot. The
weights omit that layer if it is the embeddings."""
_WORD = re.compile(r"[\w-]*")
"""Pattern of a single word: full names of layers have dots, and patterns of them `*`, `?` or `[`.
"""
_KEYS = (("adapters", "targets"), ("quantize", "targets"), ("quantize", "skip"))
_MODEL: Path = ("config", "model", "path")
_LANGUAGE_MODEL: Path = ("config", "model", "language", "path")
_INDEX = "model.safetensors.index.json"
_MOST_NAMES = 8


def target_problems(
    document: YamlDocument, marked: Sequence[MarkedString], files: Files
) -> list[Problem]:
    """Return patterns that match no layer of any model or of this one, or its embeddings."""
    problems = []
    for name, view in stage_views(document.value).items():
        if view.run != "train":
            continue
        own = {item.path[2:]: item.resolved for item in marked if item.path[:2] == ("stages", name)}
        words = _last_words(own.get(_MODEL), files)
        tied = _tied_head(own, files)
        config = view.config or {}
        for place, pattern in _patterns(config):
            path = ("stages", name, "config", *place)
            wrong = _wrong(pattern, words) or _wrong_head(pattern, place, tied, config)
            if wrong:
                message = f"{path_text(path)}: {pattern!r} {wrong}"
                problems.append(problem_at(document, path, message))
    return problems


def _tied_head(own: Mapping[Path, str], files: Files) -> str:
    """Return the output head's full name if it is certain that it is the embeddings."""
    for path in (_MODEL, _LANGUAGE_MODEL):
        values = files.json_values(f"{own[path]}/{MODEL_CONFIG}") if path in own else {}
        is_small = values.get("model_type") == SMALL_VLM
        told = values.get("language") if is_small else values
        if isinstance(told, Mapping) and told.get("tie_word_embeddings") is True:
            return f"{_LANGUAGE}.{_HEAD}" if is_small or path == _LANGUAGE_MODEL else _HEAD
    return ""


def _wrong_head(pattern: str, place: Path, tied: str, config: Mapping[str, Any]) -> str:
    """Return a message for a pattern that matches a head without its own weight."""
    key, inner = str(place[0]), place[1]
    if not tied or inner == "skip" or not fnmatch.fnmatchcase(tied, pattern):
        return ""
    skipped = (skip for of, skip in _patterns({key: config[key]}) if of[1] == "skip")
    if any(fnmatch.fnmatchcase(tied, skip) for skip in skipped):
        return ""
    return (
        f"matches {tied}, which is the embeddings by another name (tie_word_embeddings in the "
        f"model's {MODEL_CONFIG}), and has no place of its own in an export; give `{_LANGUAGE}`, "
        f"or patterns that leave {tied} out"
    )


def _patterns(config: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the place of each pattern below the config; values of other kinds are skipped."""
    for key, inner in _KEYS:
        values = config.get(key)
        given = values.get(inner) if isinstance(values, Mapping) else None
        for number, pattern in enumerate(given if isinstance(given, list) else ()):
            if isinstance(pattern, str):
                yield (key, inner, number), pattern


def _last_words(folder: str | None, files: Files) -> frozenset[str]:
    """Return the last words of all layers' names; empty if unknown."""
    weights = (
        files.json_values(f"{folder}/{_INDEX}").get("weight_map") if folder is not None else None
    )
    names = weights if isinstance(weights, dict) else {}
    found = {name.split(".")[-2] for name in names if name.endswith(".weight")}
    return frozenset({*found, _HEAD} if found else ())


def _wrong(pattern: str, words: Collection[str]) -> str:
    """Return a message that follows the pattern; empty if it may match."""
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
