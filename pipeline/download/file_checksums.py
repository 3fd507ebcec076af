"""Comparison of a downloaded file with the size and checksum that the hub gives."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pipeline.download.repository_plan import HubFile

_BLOCK_BYTES = 1 << 20


def damage(path: Path, file: HubFile) -> str | None:
    """Return how a file differs from that of the hub; None if it is the same.

    Raises:
        OSError: it cannot be read.
    """
    num_bytes = path.stat().st_size
    if num_bytes != file.num_bytes:
        return f"it has {num_bytes:,} bytes instead of {file.num_bytes:,}"
    if file.sha256 is not None:
        digest, expected = hashlib.sha256(), file.sha256
    else:
        digest, expected = hashlib.sha1(usedforsecurity=False), file.git_blob
        digest.update(f"blob {num_bytes}\0".encode())
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() == expected:
        return None
    return f"its checksum is {digest.hexdigest()} instead of {expected}"
