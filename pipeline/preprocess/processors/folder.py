"""The files of a processor folder: which they are, and their checksum."""

from __future__ import annotations

from pathlib import Path

import xxhash


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
