"""Record files of a run, of which unreadable ones become problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.base.files import read_json

Record = TypeVar("Record")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


def read_each(
    files: Iterable[Path],
    make: Callable[[Any], Record],
    problems: list[str],
    what: str,
    *,
    is_optional: bool = False,
) -> Iterator[tuple[Path, Record]]:
    """Yield the records that can be read; the others become problems.

    Missing files are no problem if `is_optional`.
    """
    for path in files:
        try:
            record = make(read_json(path))
        except UNREADABLE as error:
            if not (is_optional and isinstance(error, FileNotFoundError)):
                problems.append(f"{path}: not read as {what}: {error}")
        else:
            yield path, record


def list_files(folder: Path) -> list[Path]:
    """Return the files by name; none if the folder does not exist."""
    return sorted(folder.iterdir()) if folder.is_dir() else []
