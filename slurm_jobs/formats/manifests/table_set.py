"""Files that are one table, in the order of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TableKind = Literal["parquet", "arrow", "tar"]
FieldMap = Mapping[str, Sequence[Sequence[str]]]
"""Keys of a row, each with the places that may have its value: the extension of a member, and the
keys within its JSON."""


class NoTableError(ValueError):
    """Folder that is not a manifest; the message follows its path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFiles:
    """Files of a table, in the order of their rows."""

    kind: TableKind
    files: tuple[Path, ...]
    split: str = ""
    """Split of the data set to which they belong; empty if the folder is not divided into some."""
    others: tuple[str, ...] = ()
    """Names of the folder's other splits, which can be named as if they were folders in it."""
    fields: FieldMap | None = None
    """Where members of a tar have the values of a row; None where their extensions say it."""
    excluded: frozenset[str] = frozenset()
    """Rows of tars that are left out: the path of the tar, and after a slash the key."""
