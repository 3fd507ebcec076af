"""Splits of a folder of tables, as `datasets` and the Hugging Face hub lay them out.

A folder that `DatasetDict.save_to_disk` wrote has a folder per split. A hub folder has the split in
the names of its files (`data/train-00000-of-00005.parquet`), or a folder of files per split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.manifests.splits import split_and_rest, split_of

_NAME = re.compile(r"(.+?)(?:-\d{4,}(?:-of-\d{4,}\b.*)?)?\.parquet")
"""Name of a file, whose beginning may name a split: `train-00000-of-00005.parquet`."""
_OF_MANY = re.compile(r"-\d{4,}-of-\d{4,}\b")
_LIST = "dataset_dict.json"
_DATA_DIR = "data"
"""Folder of a hub's repository that holds the files."""


class NoSplitError(ValueError):
    """Folder of several splits, none of which is plainly for training; the message follows it."""


def saved_splits(folder: Path) -> list[str] | None:
    """Return the splits of a saved `DatasetDict`, each a folder; None if it is none.

    Raises:
        OSError, ValueError: the list of splits cannot be read.
    """
    try:
        values = json.loads(read_bytes(folder / _LIST))
    except FileNotFoundError:
        return None
    splits = values.get("splits") if isinstance(values, dict) else None
    return [str(split) for split in splits or [] if _is_name(str(split))]


def _is_name(text: str) -> bool:
    """Check that a text names something within a folder: the list may be a stranger's."""
    return Path(text).name == text and text != ".."


def parquet_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the Parquet files of a folder by split, each in the order of their names.

    All are under the name "" if they are not of several splits. Empty without such a file.
    """
    for inner in (folder, folder / _DATA_DIR):
        files = _parquet_files(inner)
        if files:
            return _by_split(files)
    splits = {}
    for child in sorted(folder.iterdir()):
        files = _parquet_files(child) if split_of(child.name) else []
        if files:
            splits[child.name] = files
    return splits


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.glob("*.parquet")
        if path.is_file() and not path.name.startswith((".", "_"))
    )


def _by_split(files: Collection[Path]) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for path in files:
        match = _NAME.fullmatch(path.name)
        name = match[1] if match and (split_of(match[1]) or _OF_MANY.search(path.name)) else ""
        splits.setdefault(name, []).append(path)
    return splits if len(splits) > 1 and "" not in splits else {"": list(files)}


def training_split(splits: Collection[str]) -> str:
    """Return the split to train on: the only one, or the only one for training.

    Raises:
        NoSplitError: there is none such.
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
    raise NoSplitError(message)


def split_path(path: Path) -> list[Path]:
    """Return the files of the split that a path names as if it were a folder; none otherwise.

    Args:
        path: `FOLDER/test` for the split `test` of the Parquet files in FOLDER.
    """
    if path.suffix or not path.parent.is_dir() or path.exists():
        return []
    files: Mapping[str, list[Path]] = parquet_splits(path.parent)
    return files.get(path.name, []) if path.name else []
