"""Recognition of a folder of tars."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_jobs.formats.manifests.keys import PICTURE_NAME
from slurm_jobs.formats.manifests.split_files import files_by_split
from slurm_jobs.formats.manifests.table_set import TableFiles
from slurm_jobs.formats.manifests.tars.energon import energon_tars

IMAGE_LISTS = ("metadata.csv", "metadata.jsonl")
"""Manifests of Hugging Face's ImageFolder, next to the images."""
_MAX_ENTRIES, _MAX_FOLDERS = 1000, 10
"""Bounds of the search for files: a folder may hold millions of them."""


def find_tars(folder: Path) -> dict[str, TableFiles]:
    """Return the tars of a folder by split; empty if it has none, or other files hold its rows.

    img2dataset writes a Parquet file without pictures for each tar, which is not read.

    Raises:
        NoTableError: Energon prepared it for samples that are not read.
        OSError: it cannot be read.
    """
    tables = energon_tars(folder)
    splits = {} if tables else files_by_split(folder, "tar")
    if not splits or any((folder / name).is_file() for name in IMAGE_LISTS):
        return tables
    tars = [path for files in splits.values() for path in files]
    folders, stems = {path.parent for path in tars}, {path.stem for path in tars}
    for path in some_files(folder):
        is_table = path.suffix == ".parquet" and path.parent in folders
        if (is_table and path.stem not in stems) or PICTURE_NAME.search(path.name):
            return tables
    for name, files in splits.items():
        tables[name] = TableFiles(kind="tar", files=tuple(files))
    return tables


def some_files(folder: Path) -> Iterator[Path]:
    """Yield entries of a folder and of the first folders in it, at most some thousands."""
    entries = list(itertools.islice(folder.iterdir(), _MAX_ENTRIES))
    yield from entries
    for path in [path for path in entries if path.is_dir()][:_MAX_FOLDERS]:
        with suppress(OSError):  # `lost+found`
            yield from itertools.islice(path.iterdir(), _MAX_ENTRIES)
