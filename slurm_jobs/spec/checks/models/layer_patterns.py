"""Check that patterns of linear layers match some, as `find_targets` of `pipeline` does.

Layer names come from the index of the weights, if a model is here and has one. In some families
loading changes how these names begin, but never their last word. PURE.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.processors.model_types import MODEL_CONFIG, SMALL_VLM
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import KeyPath

_LANGUAGE, _HEAD = "language", "lm_head"
"""Word for all layers of the language model; and the one layer whose full name has no dot. The
weights omit that layer if it is the embeddings."""
_WORD = re.compile(r"[\w-]*")
"""Pattern of a single word: full names of layers have dots, and patterns of them `*`, `?` or `[`.
"""
_KEYS = (("adapters", "targets"), ("quantize", "targets"), ("quantize", "skip"))
_MODEL: KeyPath = ("config", "model", "path")
_LANGUAGE_MODEL: KeyPath = ("config", "model", "language", "path")
_INDEX = "model.safetensors.index.json"
_MOST_NAMES = 8


def target_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield patterns that match no layer of any model or of this one, or its embeddings."""
    for name, view in spec.views.items():
        if view.run != "train":
            continue
        paths = {i.path[2:]: i.resolved for i in spec.expanded if i.path[:2] == ("stages", name)}
        words = _last_words(paths.get(_MODEL), spec.files)
        tied = _tied_head(paths, spec.files)
        patterns = list(_patterns(view.config or {}))
        for place, pattern in patterns:
            wrong = _wrong(pattern, words)
            if not wrong and place[1] != "skip" and tied and fnmatch.fnmatchcase(tied, pattern):
                skip = (place[0], "skip")
                skipped = [other for at, other in patterns if at[:2] == skip]
                if not any(fnmatch.fnmatchcase(tied, other) for other in skipped):
                    wrong = (
                        f"matches {tied}, which is the embeddings by another name "
                        f"(tie_word_embeddings in the model's {MODEL_CONFIG}), and has no place of "
                        f"its own in an export; give `{_LANGUAGE}`, or patterns that leave {tied} "
                        "out"
                    )
            if wrong:
                yield spec.problem(("stages", name, "config", *place), f"{pattern!r} {wrong}")


def _tied_head(paths: Mapping[KeyPath, str], files: Files) -> str:
    """Return the output head's full name if it is certain that it is the embeddings."""
    for path in (_MODEL, _LANGUAGE_MODEL):
        values = files.json_values(f"{paths[path]}/{MODEL_CONFIG}") if path in paths else {}
        is_small = values.get("model_type") == SMALL_VLM
        language = values.get("language") if is_small else values
        if isinstance(language, Mapping) and language.get("tie_word_embeddings") is True:
            return f"{_LANGUAGE}.{_HEAD}" if is_small or path == _LANGUAGE_MODEL else _HEAD
    return ""


def _patterns(config: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place of each pattern below the config; values of other kinds are skipped."""
    for key, inner in _KEYS:
        values = config.get(key)
        given = values.get(inner) if isinstance(values, Mapping) else None
        for number, pattern in enumerate(given if isinstance(given, list) else ()):
            if isinstance(pattern, str):
                yield (key, inner, number), pattern


def _last_words(folder: str | None, files: Files) -> frozenset[str]:
    """Return the last words of all layers' names; empty if unknown."""
    weights = files.json_values(f"{folder}/{_INDEX}").get("weight_map") if folder else None
    names = weights if isinstance(weights, dict) else {}
    words = {name.split(".")[-2] for name in names if name.endswith(".weight")}
    return frozenset({*words, _HEAD} if words else ())


def _wrong(pattern: str, words: Collection[str]) -> str | None:
    """Return a message that follows the pattern; None if it may match."""
    if pattern in {_LANGUAGE, _HEAD}:
        return None
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
        return None
    if any(word == last if is_whole else word.endswith(last) for word in words):
        return None
    some = ", ".join(sorted(words)[:_MOST_NAMES])
    return (
        f"matches no layer of the model: none ends with `{last}`{did_you_mean(last, words)} "
        f"(some of its layers: {some})"
    )
