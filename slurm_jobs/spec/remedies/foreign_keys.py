"""What an unknown key is called here, if another tool has it or another place knows it. PURE."""

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
    """Name of an unknown key in slurm-jobs."""

    own: OwnKey
    place: Path
    """Path of the key in the values; empty if it is in another stage, or does not exist."""
    example: str
    """In YAML, instead of the unknown key, or at `place` if that is not below."""
    is_near: bool
    """Whether the key is next to the unknown key or below it: the word is then unambiguous."""


def foreign_key(target: Any, values: Any, location: Path) -> Hint | None:
    """Return what an unknown key is called here, if another tool has it.

    Args:
        target: the model that does not know it: a built-in stage's config, or a whole spec.
        values: everything that `target` was to describe.
        location: of the key.
    """
    word, *around = (str(step).lower().replace("-", "_") for step in location[:-3:-1])
    own = _BY_WORD.get(".".join([*around, word])) or _BY_WORD.get(word)
    builtin = _CONFIGS.get(getattr(target, "__name__", ""), "")
    config: Path = ()
    if not builtin and location[0] == "stages" and len(location) == 3:  # the config is below
        run = values["stages"][location[1]].get("run")
        builtin, config = (run if run in _CONFIGS.values() else ""), (*location[:2], "config")
    if own is None or not builtin:
        return None
    path = tuple(own.path.split("."))
    if own.stage != builtin or not own.path:
        hint = Hint(own=own, place=(), example=_example(path, own), is_near=True)
        return hint if builtin == "train" else None
    holder = location[:-1]
    # The nearest mapping outwards that knows the key: a phase has some keys of its own.
    around_it = (holder[:length] for length in range(len(holder), -1, -1))
    base = next((outer for outer in around_it if path[0] in known_keys(target, outer)), ())
    place: Path = (*(config or base), *path)
    is_near = place[: len(holder)] == holder
    steps = (place[len(holder) :] if is_near else ()) or path
    return Hint(own=own, place=place, example=_example(steps, own), is_near=is_near)


def places_elsewhere(target: Any, location: Path) -> list[Path]:
    """Return where else a key of this name is: below the mapping that lacks it, or around that.

    Around it only a single place counts: a name in several places is ambiguous.
    """
    holder, key = location[:-1], str(location[-1])
    for length in range(len(holder), -1, -1):
        base = holder[:length]
        places: list[Path] = [(*base, *below) for below in places_of(type_at(target, base), key)]
        if places:
            return places if base == holder or len(places) == 1 else []
    return []


def _example(steps: Path, own: OwnKey) -> str:
    """Return `optimizer: {learning_rate: 1e-4}`."""
    text = f"{steps[-1]}: {own.value}"
    if own.beside and len(steps) > 1:
        text = f"{own.beside}, {text}"
    for step in reversed(steps[:-1]):
        text = f"{step}: {{{text}}}"
    return text
