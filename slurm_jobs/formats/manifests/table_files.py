"""Files of a manifest that is a table: Parquet, or a folder that `datasets` saved to disk."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.file_signatures import HEAD_BYTES, signature_of
from slurm_jobs.formats.manifests.keys import PICTURE_NAME

_OF_SPLIT = re.compile(r"(.+?)-\d{4,}-of-\d{4,}\b.*\.parquet")
"""Names of the files of a split, as the Hub has them: `train-00000-of-00005.parquet`."""

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


def find_table(path: Path) -> TableFiles | None:
    """Return the table at `path`; None for a file that begins differently.

    Raises:
        NoTableError: a folder that is not a table, or more than one.
        OSError: it cannot be read.
    """
    if path.is_dir():
        is_saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
        return _saved_files(path) if is_saved else _parquet_files(path)
    with open_regular(path) as stream:
        signature = signature_of(stream.read(HEAD_BYTES))
    if signature is None or signature.group not in {"parquet", "arrow"}:
        return None
    kind: Literal["parquet", "arrow"] = "parquet" if signature.group == "parquet" else "arrow"
    return TableFiles(kind=kind, files=(path,))


def _saved_files(folder: Path) -> TableFiles:
    """Return the files that `save_to_disk` of `datasets` wrote."""
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits") or []
        given = ", ".join(str(folder / str(split)) for split in splits)
        message = f" holds the splits of a data set; give the folder of one: {given or 'none'}"
        raise NoTableError(message)
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        message = " was saved with a selection of rows; call `flatten_indices()` and save it again"
        raise NoTableError(message)
    listed = state.get("_data_files") or []
    names = [item.get("filename") for item in listed if isinstance(item, dict)]
    files = tuple(folder / name for name in names if isinstance(name, str))
    missing = next((file.name for file in files if not file.is_file()), None)
    if missing is not None or not files:
        message = f": state.json lists {missing or 'no files'}, which does not exist; copy it again"
        raise NoTableError(message)
    return TableFiles(kind="arrow", files=files)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        message = f": {path.name} is not valid JSON ({error})"
        raise NoTableError(message) from error
    return value if isinstance(value, dict) else {}


def _parquet_files(folder: Path) -> TableFiles:
    files = sorted(
        path
        for path in folder.glob("*.parquet")
        if path.is_file() and not path.name.startswith((".", "_"))
    )
    splits = sorted({match[1] for path in files if (match := _OF_SPLIT.fullmatch(path.name))})
    if len(splits) > 1:
        message = (
            f" holds files of the splits {', '.join(splits)}, but a manifest is one of them: "
            "link or move the files of one split into a folder of their own"
        )
        raise NoTableError(message)
    if files:
        return TableFiles(kind="parquet", files=tuple(files))
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
