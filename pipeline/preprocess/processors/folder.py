"""The files of a processor folder: which they are, their checksum, their JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.common.errors import StageConfigError


def check_folder(folder: Path) -> None:
    """See that there is a folder at all.

    Raises:
        StageConfigError: there is none.
    """
    if not folder.is_dir():
        message = (
            f"{folder}: no such processor folder; download the model's processor there first "
            f"(compute nodes do not ask a hub)"
        )
        raise StageConfigError(message)


def hash_folder(folder: Path) -> str:
    """xxh3-128 over the names and bytes of a folder's files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in processor_files(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def processor_files(folder: Path) -> list[Path]:
    """The files of a processor folder by name: small texts, not the weights that may lie beside."""
    suffixes = {".json", ".jinja", ".txt", ".model"}
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix in suffixes
        and not path.name.endswith(".index.json")
        and not path.name.startswith(".")
    )


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in `path`; empty if there is no such file.

    Raises:
        StageConfigError: it is none.
    """
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"{path}: no valid JSON ({error})"
        raise StageConfigError(message) from error
    if not isinstance(values, dict):
        message = f"{path}: a JSON {type(values).__name__}, expected an object"
        raise StageConfigError(message)
    return values
