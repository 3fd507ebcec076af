"""Files of a manifest that is a table: Parquet, tars, or what `datasets` saved to disk."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.file_signatures import HEAD_BYTES, signature_of
from slurm_jobs.formats.manifests.brace_lists import has_braces, listed_files
from slurm_jobs.formats.manifests.keys import PICTURE_NAME
from slurm_jobs.formats.manifests.split_files import (
    files_by_split,
    saved_splits,
    training_split,
)
from slurm_jobs.formats.manifests.table_set import NoTableError, TableFiles, TableKind
from slurm_jobs.formats.manifests.tars.tar_folder import IMAGE_LISTS, find_tars, some_files


def find_table(path: Path) -> TableFiles | None:
    """Return the table at `path`; None for a file that begins differently.

    Of a folder with several splits it is the one for training; `FOLDER/test` names another. A path
    with braces lists files.

    Raises:
        NoTableError: a folder that is not a table, or more than one; or a list of other files.
        OSError: it cannot be read.
    """
    if has_braces(path):
        return listed_files(path)
    if path.is_dir():
        splits = saved_splits(path)
        if splits is not None:
            taken = training_split(splits)
            others = tuple(name for name in splits if name != taken)
            return replace(_saved_files(path / taken), split=taken, others=others)
        is_saved = (path / "state.json").is_file()
        return _saved_files(path) if is_saved else _trained_split(path)
    split = named_split(path)
    if split is not None:
        return split
    with open_regular(path) as stream:
        signature = signature_of(stream.read(HEAD_BYTES))
    if signature is None:
        return TableFiles(kind="tar", files=(path,)) if path.suffix == ".tar" else None
    kinds: dict[str, TableKind] = {"Parquet": "parquet", "Arrow stream": "arrow", "tar": "tar"}
    kind = kinds.get(signature.name)
    return None if kind is None else TableFiles(kind=kind, files=(path,))


def named_split(path: Path) -> TableFiles | None:
    """Return the split that a path names as if it were a folder; None otherwise.

    Args:
        path: `FOLDER/test` for the split `test` of the files in FOLDER.
    """
    if path.suffix or not path.name or not path.parent.is_dir() or path.exists():
        return None
    table = _by_split(path.parent).get(path.name)
    return None if table is None else replace(table, split=path.name)


def _by_split(folder: Path) -> dict[str, TableFiles]:
    tables = find_tars(folder)
    if not tables:
        for name, files in files_by_split(folder, "parquet").items():
            tables[name] = TableFiles(kind="parquet", files=tuple(files))
    return tables


def _trained_split(folder: Path) -> TableFiles:
    tables = _by_split(folder)
    if not tables:
        raise NoTableError(_why_no_table(folder))
    taken = training_split(tables)
    others = tuple(name for name in tables if name != taken)
    return replace(tables[taken], split=taken, others=others)


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


def _why_no_table(folder: Path) -> str:
    message = (
        " is a folder without `*.parquet` or `*.tar` files, and none that `save_to_disk` of "
        "`datasets` wrote (it has no state.json)"
    )
    listed = next((name for name in IMAGE_LISTS if (folder / name).is_file()), None)
    names = [path.name for path in some_files(folder)]
    if listed is not None:
        return f"{message}; {folder / listed} lists its images: name that file as the manifest"
    if any(map(PICTURE_NAME.search, names)):
        return (
            f"{message}; it holds pictures: a manifest lists them with their texts, as CSV "
            "(`image_path,text`) or JSON lines; `slurm-jobs init --data "
            f"{shlex.quote(str(folder))}` writes one for pictures with a text each, or in a "
            "folder for each class"
        )
    if any(name.endswith((".tar.gz", ".tgz")) for name in names):
        return f"{message}; it holds compressed tars, which are read after `gunzip *.tar.gz`"
    return message
