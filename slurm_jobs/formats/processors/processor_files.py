"""Small files of a processor folder, and changes since `consolidate` copied them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePath

from slurm_jobs.base.regular_files import MOST_MEASURED_BYTES, read_bytes

_SUFFIXES = frozenset({".json", ".jinja", ".txt", ".model"})


def processor_files(folder: Path) -> list[Path]:
    """Return the files of a processor folder by name, without weights that may be next to them."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix in _SUFFIXES
        and not path.name.endswith(".index.json")
        and not path.name.startswith(".")
    )


def processor_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a processor folder, by name; empty without a folder.

    SHA-256 because the login node must compute it too, and its Python may lack xxhash.
    """
    if not folder.is_dir():
        return {}
    return {
        path.name: hashlib.sha256(read_bytes(path, most_bytes=MOST_MEASURED_BYTES)).hexdigest()
        for path in processor_files(folder)
    }


def changed_files(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the differences between two sets of checksums: `chat_template.jinja was changed`."""
    verbs = {
        **dict.fromkeys(expected.keys() - found.keys(), "is missing"),
        **dict.fromkeys(found.keys() - expected.keys(), "was added"),
        **{
            name: "was changed"
            for name in expected.keys() & found.keys()
            if expected[name] != found[name]
        },
    }
    return [f"{name} {verb}" for name, verb in sorted(verbs.items())]


def changed_processor(folder: PurePath, changes: list[str]) -> str:
    """Return the message about a data set whose processor folder has changed."""
    return (
        f"{folder}: {', '.join(changes)} since `consolidate`: the samples were made with other "
        "files, so the model would be evaluated and exported with a processor that it was not "
        "trained with. Put the files back, or run `consolidate` again (to use other files, run "
        "`preprocess` again with them)"
    )
