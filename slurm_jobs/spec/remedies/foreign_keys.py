"""What an unknown key is called here: one that another tool has, or that stands elsewhere. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.spec.model_keys import known_keys, places_of, type_at
from slurm_jobs.spec.remedies.foreign_words import OWN_KEYS, OwnKey
from slurm_jobs.spec.yaml_values import Path

_BY_WORD: Mapping[str, OwnKey] = {word: own for words, own in OWN_KEYS for word in words.split()}
_CONFIGS = {"TrainConfig": "train", "PreprocessConfig": "preprocess"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hint:
    """What an unknown key is called here."""

    own: OwnKey
    place: Path
    """Where that stands in the values; empty where it is another stage's, or nowhere."""
    example: str
    """In YAML, to be written in place of the unknown key, or at `place` where that is not below."""
    is_near: bool
    """Whether it stands beside the unknown key or below: the word can hardly mean another."""


def foreign_key(target: Any, values: Any, location: Path) -> Hint | None:
    """What an unknown key is called here, if another tool has it.

    Args:
        target: the model that does not know it: a built-in stage's config, or a whole spec.
        values: all that stands there.
        location: of the key.
    """
    own = _own_key(location)
    builtin, config = _config_of(target, values, location)
    if own is None or not builtin:
        return None
    path = tuple(own.path.split("."))
    if own.stage != builtin or not own.path:
        hint = Hint(own=own, place=(), example=_example(path, own), is_near=True)
        return hint if builtin == "train" else None
    holder = location[:-1]
    place: Path = (*(config or _base(target, holder, path[0])), *path)
    is_near = place[: len(holder)] == holder
    steps = (place[len(holder) :] if is_near else ()) or path
    return Hint(own=own, place=place, example=_example(steps, own), is_near=is_near)


def _own_key(location: Path) -> OwnKey | None:
    """What a word means; in a mapping that it is told apart for (`optimizer.type`), that."""
    word, *around = (str(step).lower().replace("-", "_") for step in location[:-3:-1])
    return _BY_WORD.get(".".join([*around, word])) or _BY_WORD.get(word)


def places_elsewhere(target: Any, location: Path) -> list[Path]:
    """Where else a key of this name stands: below the mapping that lacks it, or around that.

    Around it one place alone is told: a name that stands in several of those means nothing.
    """
    holder, key = location[:-1], str(location[-1])
    for length in range(len(holder), -1, -1):
        base = holder[:length]
        found: list[Path] = [(*base, *below) for below in places_of(type_at(target, base), key)]
        if found:
            return found if base == holder or len(found) == 1 else []
    return []


def _config_of(target: Any, values: Any, location: Path) -> tuple[str, Path]:
    """The built-in stage whose setting may be meant; where its config is, if the key is above."""
    name = getattr(target, "__name__", "")
    if name in _CONFIGS:
        return _CONFIGS[name], ()
    if location[0] != "stages" or len(location) != 3:
        return "", ()
    run = values["stages"][location[1]].get("run")
    return (run if run in _CONFIGS.values() else ""), (*location[:2], "config")


def _base(target: Any, holder: Path, key: str) -> Path:
    """The nearest mapping from `holder` outwards that knows `key`: a phase has some of its own."""
    lengths = range(len(holder), -1, -1)
    return next((holder[:n] for n in lengths if key in known_keys(target, holder[:n])), ())


def _example(steps: Path, own: OwnKey) -> str:
    """`optimizer: {learning_rate: 1e-4}`."""
    text = f"{steps[-1]}: {own.value}"
    if own.beside and len(steps) > 1:
        text = f"{own.beside}, {text}"
    for step in reversed(steps[:-1]):
        text = f"{step}: {{{text}}}"
    return text
