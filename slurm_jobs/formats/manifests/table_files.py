"""Files of a manifest that is a table: Parquet, or a folder that `datasets` saved to disk."""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.file_signatures import HEAD_BYTES, signature_of
from slurm_jobs.formats.manifests.keys import PICTURE_NAME
from slurm_jobs.formats.manifests.split_files import (
    NoSplitError,
    parquet_splits,
    saved_splits,
    split_path,
    training_split,
)

_MAX_ENTRIES, _MAX_FOLDERS = 1000, 10
"""Bounds of the search for pictures: a folder may hold millions of files."""
_LISTS = ("metadata.csv", "metadata.jsonl")
"""Manifests of Hugging Face's ImageFolder, next to the images."""


class NoTableError(ValueError):
    """Folder that is not a manifest; the message follows its path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFiles:
    """Files of a table, in the order of their rows."""

    kind: Literal["parquet", "arrow"]
    files: tuple[Path, ...]
    split: str = ""
    """Split of the data set to which they belong; empty if the folder has no several splits."""
    others: tuple[str, ...] = ()
    """Names of the folder's other splits, which can be named as if they were folders in it."""


def find_table(path: Path) -> TableFiles | None:
    """Return the table at `path`; None for a file that begins differently.

    Of a folder with several splits it is the one for training; `FOLDER/test` names another.

    Raises:
        NoTableError: a folder that is not a table, or more than one.
        OSError: it cannot be read.
    """
    if path.is_dir():
        splits = _saved_splits(path)
        if splits is not None:
            taken = _training_split(splits)
            others = tuple(name for name in splits if name != taken)
            return replace(_saved_files(path / taken), split=taken, others=others)
        is_saved = (path / "state.json").is_file()
        return _saved_files(path) if is_saved else _parquet_files(path)
    files = split_path(path)
    if files:
        return TableFiles(kind="parquet", files=tuple(files), split=path.name)
    with open_regular(path) as stream:
        signature = signature_of(stream.read(HEAD_BYTES))
    if signature is None or signature.group not in {"parquet", "arrow"}:
        return None
    kind: Literal["parquet", "arrow"] = "parquet" if signature.group == "parquet" else "arrow"
    return TableFiles(kind=kind, files=(path,))


def _saved_files(folder: Path) -> TableFiles:
    """Return the files that `save_to_disk` of `datasets` wrote."""
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        message = " was saved with a selection of rows; call `flatten_indices()` and save it again"
        raise NoTableError(message)
    listed = state.get("_data_files") or []
    names = [item.get("filename") for item in listed if isinstance(item, dict)]
    own = [name for name in names if isinstance(name, str) and Path(name).name == name]
    files = tuple(folder / name for name in own)
    missing = next((file.name for file in files if not file.is_file()), None)
    if missing is not None or not files or len(own) < len(names):
        message = f": state.json lists {missing or 'no files'}, which does not exist; copy it again"
        raise NoTableError(message)
    return TableFiles(kind="arrow", files=files)


def _saved_splits(folder: Path) -> list[str] | None:
    try:
        return saved_splits(folder)
    except (ValueError, RecursionError) as error:
        message = f": dataset_dict.json is not valid JSON ({error})"
        raise NoTableError(message) from error


def _training_split(splits: Collection[str]) -> str:
    try:
        return training_split(splits)
    except NoSplitError as error:
        raise NoTableError(str(error)) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_bytes(path))
    except FileNotFoundError as error:
        message = f": {path.parent.name}/{path.name} does not exist; copy the folder again"
        raise NoTableError(message) from error
    except (ValueError, RecursionError) as error:
        message = f": {path.name} is not valid JSON ({error})"
        raise NoTableError(message) from error
    return value if isinstance(value, dict) else {}


def _parquet_files(folder: Path) -> TableFiles:
    splits = parquet_splits(folder)
    if splits:
        taken = _training_split(splits)
        others = tuple(name for name in splits if name != taken)
        return TableFiles(kind="parquet", files=tuple(splits[taken]), split=taken, others=others)
    message = (
        " is a folder without `*.parquet` files, and none that `save_to_disk` of `datasets` "
        "wrote (it has no state.json)"
    )
    listed = next((name for name in _LISTS if (folder / name).is_file()), None)
    entries = list(itertools.islice(folder.iterdir(), _MAX_ENTRIES))
    for path in [path for path in entries if path.is_dir()][:_MAX_FOLDERS]:
        with contextlib.suppress(OSError):  # `lost+found`
            entries += itertools.islice(path.iterdir(), _MAX_ENTRIES)
    if listed is not None:
        message += f"; {folder / listed} lists its images: name that file as the manifest"
    elif any(PICTURE_NAME.search(path.name) for path in entries):
        message += (
            "; it holds pictures: a manifest lists them with their texts, as CSV "
            "(`image_path,text`) or JSON lines; `slurm-jobs init --data "
            f"{shlex.quote(str(folder))}` writes one for pictures with a text each, or in a "
            "folder for each class"
        )
    raise NoTableError(message)
