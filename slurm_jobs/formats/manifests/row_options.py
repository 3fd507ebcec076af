"""Options for the rows of a manifest: what its columns mean, and prompts that rows may lack."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.configs.stages import DEFAULT_PROMPT, KNOWN_COLUMNS, Columns
from slurm_jobs.formats.manifests.keys import (
    FILE_NAMES,
    SPELLINGS,
    Meaning,
    looks_like_picture,
    normal,
)
from slurm_jobs.formats.manifests.row_shapes.shape_table import SHAPE_KEYS

_MAPPED: tuple[tuple[str, Meaning], ...] = (
    ("image", "image"),
    ("text", "text"),
    ("prompt", "prompt"),
    ("system", "system"),
    ("messages", "turns"),
)
"""Keys of the config `columns`, with the meaning of the columns that they name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions:
    """Options for rows from the config."""

    prompt: str = DEFAULT_PROMPT
    """Prompt next to the image of a caption whose row has none."""
    system_prompt: str = ""
    """System prompt of captions and questions whose row has none; empty for no system message."""
    columns: Columns = KNOWN_COLUMNS
    _meanings: dict[str, Meaning | None] = field(default_factory=dict, compare=False, repr=False)

    def meaning(self, key: str) -> Meaning | None:
        """Return the meaning of a column; None if it is not read."""
        if key not in self._meanings:
            given = {getattr(self.columns, name): meaning for name, meaning in _MAPPED}
            given.pop(None, None)
            meaning = given.get(key) or SPELLINGS.get(normal(key))
            if key not in given and (meaning in given.values() or self.ignores(key)):
                meaning = None
            self._meanings[key] = meaning
        return self._meanings[key]

    def ignores(self, key: str) -> bool:
        """Check whether the user ignores a column, or named another one for its meaning."""
        if key in self.columns.ignore:
            return True
        is_picture = SPELLINGS.get(normal(key)) == "image" or normal(key) in FILE_NAMES
        return is_picture and self.columns.image not in (None, key)

    def reads(self, key: str) -> bool:
        """Check whether a column may be a part of samples."""
        is_read = self.meaning(key) is not None or self.holds_picture(key)
        return is_read or (normal(key) in SHAPE_KEYS and not self.ignores(key))

    def holds_picture(self, key: str) -> bool:
        """Check whether a column has pictures, or names of their files."""
        if self.meaning(key) == "image":
            return True
        return normal(key) in FILE_NAMES and not self.ignores(key) and self.meaning(key) is None

    def holds_turns(self, key: str) -> bool:
        """Check whether a column may have turns."""
        return "turns" in (self.meaning(key), SHAPE_KEYS.get(normal(key)))

    def looks_at(self, key: str) -> bool:
        """Check whether a column's values are needed: as content, or to detect content."""
        return self.reads(key) or key not in self.columns.ignore

    def replaced_by(self, key: str) -> tuple[str, str] | None:
        """Return the key of `columns`, and the column it names, that replaces this one."""
        name = "image" if normal(key) in FILE_NAMES else SPELLINGS.get(normal(key))
        option = next((option for option, meaning in _MAPPED if meaning == name), None)
        column = getattr(self.columns, option) if option else None
        if option is None or column in (None, key) or key in self.columns.ignore:
            return None
        return None if self.meaning(key) is not None else (option, column)

    def wrong_columns(self, names: Sequence[str]) -> str | None:
        """Return what is wrong with the columns of a table or CSV; None if they make samples.

        If several columns have one meaning, the rows decide: all but one may be empty.
        """
        missing = missing_columns(self.columns, names)
        if missing:
            return missing
        twice = sorted({name for name in names if self.reads(name) and names.count(name) > 1})
        if twice:
            return f"column {', '.join(twice)} named twice"
        held = {self.meaning(name) or SHAPE_KEYS.get(normal(name)) for name in names}
        if any(map(self.holds_picture, names)):
            held.add("image")
        if "turns" in held or {"text", "image"} <= held or {"text", "prompt"} <= held:
            return None
        key = "image" if "text" in held else "text"
        lacks = {
            "image": "no column has images (`image`, `image_path`, `file_name`, ...)",
            "text": "no column has turns (`messages`, `conversations`, `texts`) or answers "
            "(`text`, `caption`, `answer`, ...)",
        }[key]
        listed_names = ", ".join(names) or "nothing"
        if looks_like_picture(list(names)):
            return f"{lacks}; found: {listed_names}. The first line must name the columns"
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            return f"{lacks}; found: {listed_names}. Put commas between the columns"
        return f"{lacks}; found: {listed_names}. Name it in the config: `columns: {{{key}: NAME}}`"


def missing_columns(columns: Columns, names: Collection[str]) -> str | None:
    """Return config columns that do not exist; None if all do. `ignore` may name any."""
    mapped = {key: getattr(columns, key) for key, _ in _MAPPED}
    for key, name in mapped.items():
        if name is None:
            continue
        keys = [f"`columns.{other}`" for other, value in mapped.items() if value == name]
        if len(keys) > 1:
            return f"{' and '.join(keys)} name the same column, `{name}`"
        if name not in names:
            return (
                f"no column `{name}`, which `columns.{key}` names"
                f"{did_you_mean(name, names) or ';'} found: {', '.join(names) or 'nothing'}"
            )
    return None
