"""Checksum of the files of a processor folder."""

from __future__ import annotations

from pathlib import Path

import xxhash

from slurm_jobs.common.processors.files import processor_files


def hash_folder(folder: Path) -> str:
    """xxh3-128 over the names and bytes of a folder's files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in processor_files(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
