"""Files that one path with braces lists, as WebDataset's tools write it: `{00000..00012}.tar`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

from slurm_jobs.formats.manifests.table_set import NoTableError, TableFiles, TableKind

_BRACES = re.compile(r"(?<!\$)\{(\d{1,9}\.\.\d{1,9}|[^{},]+(?:,[^{},]+)+)\}")
"""A range or several names; `{user}` is a placeholder of something else."""
_KINDS: dict[str, TableKind] = {".tar": "tar", ".parquet": "parquet"}
_MOST_FILES = 100_000
"""Own choice, ten times the shards of LAION-400M; more would be a typing error."""


def has_braces(path: Path) -> bool:
    """Check whether a path lists files, and is not one that exists with braces in its name."""
    return _BRACES.search(str(path)) is not None and not path.exists()


def listed_files(path: Path) -> TableFiles:
    """Return the tars or Parquet files that a path with braces lists, in the order of the list.

    Raises:
        NoTableError: one of them does not exist, or they are not all of one kind.
    """
    files = tuple(map(Path, expand_braces(str(path))))
    kinds = {_KINDS.get(file.suffix) for file in files}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        message = " lists files that are neither all tars (.tar) nor all Parquet files (.parquet)"
        raise NoTableError(message)
    missing = [file for file in files if not file.is_file()]
    if missing:
        message = (
            f" lists {len(files):,} files, and {len(missing):,} of them do not exist, {missing[0]} "
            "first; correct the range in braces, or copy the files"
        )
        raise NoTableError(message)
    return TableFiles(kind=kind, files=files)


def expand_braces(text: str) -> list[str]:
    """Return the texts that one with braces stands for.

    `{00000..00012}` counts up with as many digits, and `{a,b}` names each.

    Raises:
        NoTableError: there are too many, or none.
    """
    parts = _BRACES.split(text)  # the contents of braces are at every second place
    choices = [[part] if place % 2 == 0 else _choices(part) for place, part in enumerate(parts)]
    _check_number(math.prod(map(len, choices)))
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _choices(content: str) -> Sequence[str]:
    first, dots, last = content.partition("..")
    if not dots or "," in content:
        return content.split(",")
    numbers = range(int(first), int(last) + 1)
    _check_number(len(numbers))
    return [f"{number:0{len(first)}}" for number in numbers]


def _check_number(number: int) -> None:
    if not 0 < number <= _MOST_FILES:
        message = f" lists {number:,} files, not 1 to {_MOST_FILES:,}; correct the range in braces"
        raise NoTableError(message)
