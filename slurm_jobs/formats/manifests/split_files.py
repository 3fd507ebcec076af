"""Splits of a folder of tables, as `datasets` and the Hugging Face hub lay them out.

A folder that `DatasetDict.save_to_disk` wrote has a folder per split. A hub folder has the split in
the names of its files (`data/train-00000-of-00005.parquet`), or a folder of files per split.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.manifests.splits import split_and_rest, split_of
from slurm_jobs.formats.manifests.table_set import NoTableError

_FILE_OF_SPLIT = re.compile(r"(.+?)(?:[-_]\d+(?:-of-\d{4,}\b.*)?)?\.(?:parquet|tar)")
"""Name of a file, whose beginning may name a split: `train-00000-of-00005.parquet`."""
_OF_MANY = re.compile(r"-(\d{4,})-of-(\d{4,})\b")
_PACKERS = ("gz", "zst", "xz", "bz2", "lz4")
_LIST = "dataset_dict.json"
_DATA_DIR = "data"
"""Folder of a hub's repository that holds the files."""


def saved_splits(folder: Path) -> list[str] | None:
    """Return the splits of a saved `DatasetDict`, each a folder; None if it is none.

    Raises:
        NoTableError: the list of splits is not valid JSON.
        OSError: it cannot be read.
    """
    try:
        values = json.loads(read_bytes(folder / _LIST))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        message = f": {_LIST} is not valid JSON ({error})"
        raise NoTableError(message) from error
    splits = values.get("splits") if isinstance(values, dict) else None
    return [str(split) for split in splits or [] if _is_name(str(split))]


def _is_name(text: str) -> bool:
    """Check that a text names something within a folder: the list may be a stranger's."""
    return Path(text).name == text and text != ".."


def files_by_split(folder: Path, suffix: Literal["parquet", "tar"]) -> dict[str, list[Path]]:
    """Return the files of a folder by split, each in the order of their names.

    All are under the name "" if they name no split, or one for training. Empty without such a file.

    Raises:
        NoTableError: some files are not of a split, and others are not for training; or some are
            compressed, and others are not.
    """
    for inner in (folder, folder / _DATA_DIR):
        files = _files(inner, suffix)
        if files:
            return _by_split(files)
    splits = {}
    for child in sorted(folder.iterdir()):
        files = _files(child, suffix) if split_of(child.name) else []
        if files:
            splits[child.name] = files
    return splits


def _files(folder: Path, suffix: str) -> list[Path]:
    files: list[Path] = []
    unread: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            is_read = entry.name.endswith(f".{suffix}")
            if not is_read and not _is_packed(entry.name.lower(), suffix):
                continue
            if not entry.is_file():  # Spark writes folders that are called `rows.parquet`
                continue
            if is_read:
                files.append(Path(entry.path))
            else:
                unread.append(entry.name)
    files.sort()
    if files and unread:
        message = (
            f" holds {min(unread)}, which is not read, next to {files[0].name}: decompress or "
            f"rename it to end in .{suffix}, or move one of them into a folder of its own"
        )
        raise NoTableError(message)
    return files


def _is_packed(name: str, suffix: str) -> bool:
    """Check, by a name in small letters, for a compressed file or one whose suffix has capitals."""
    endings = [f".{suffix}", *(f".{suffix}.{packer}" for packer in _PACKERS)]
    return name.endswith((*endings, ".tgz") if suffix == "tar" else tuple(endings))


def _by_split(files: Collection[Path]) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for path in files:
        match = _FILE_OF_SPLIT.fullmatch(path.name)
        is_split = match and (split_and_rest(match[1])[0] or _OF_MANY.search(path.name))
        splits.setdefault(match[1] if match and is_split else "", []).append(path)
    held_out = [name for name in splits if split_and_rest(name)[0] in {"validation", "test"}]
    if "" in splits and held_out:
        message = (
            f" holds {splits[''][0].name}, which names no split, next to "
            f"{splits[held_out[0]][0].name}, which would be trained on with it: move one of them "
            "into a folder of its own"
        )
        raise NoTableError(message)
    is_divided = "" not in splits and (len(splits) > 1 or bool(held_out))
    return splits if is_divided else {"": list(files)}


def num_missing(files: Collection[Path]) -> int:
    """Return how many files are missing of those that names such as `train-00001-of-00003` count.

    0 if the names count none, or different numbers.
    """
    matches = [_OF_MANY.search(path.name) for path in files]
    places = {match[1] for match in matches if match}
    totals = {match[2] if match else None for match in matches}
    total = totals.pop() if len(totals) == 1 else None
    return 0 if total is None else max(0, int(total) - len(places))


def training_split(splits: Collection[str]) -> str:
    """Return the split to train on: the only one, or the only one for training.

    Raises:
        NoTableError: there is none such.
    """
    names = sorted(splits)
    exactly = [name for name in names if name == "train"]
    plainly = [name for name in names if split_of(name) == "train"]
    with_more = [name for name in names if split_and_rest(name)[0] == "train"]  # `train_sft`
    for candidates in (names, exactly, plainly, with_more):
        if len(candidates) == 1:
            return candidates[0]
    message = (
        f" holds the splits {', '.join(names) or 'of a list that is empty'}, and none of them is "
        "plainly for training: name one, as if it were a folder in this one"
    )
    raise NoTableError(message)
