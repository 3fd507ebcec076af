"""Interface of manifests, and the error of one that changes while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.manifests.messages import ManifestRow


class Manifest(Protocol):
    """Open manifest with counted rows and a fingerprint of its content."""

    path: Path
    num_rows: int
    """Rows, up to `limit`."""
    fingerprint: str
    """Hexadecimal, of the whole manifest, whatever `limit`; images' bytes are not part of it. Of
    tars it covers those that have the rows up to `limit`."""

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers, in order.

        Raises:
            StageError: the file has changed since rows were counted.
            StageConfigError: the file is damaged.
        """
        ...

    def fingerprint_now(self) -> str | None:
        """Return the fingerprint of the current content; None if it cannot be read."""
        ...


def changed(path: Path, change: str) -> StageError:
    """Return the error of a manifest whose content has changed since it was counted."""
    message = (
        f"{path}: changed while its rows were read ({change}); nothing was written. Do not change "
        "it while the array runs, and preprocess all slices of one manifest"
    )
    return StageError(message)
