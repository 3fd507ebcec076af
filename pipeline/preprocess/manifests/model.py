"""What every manifest can do, and the error of one that is changed while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from slurm_jobs.common.errors import StageError
from slurm_jobs.common.manifests.rows import ManifestRow


class Manifest(Protocol):
    """An open manifest: its rows have been counted, and its content has a fingerprint."""

    path: Path
    num_rows: int
    """Those beyond `limit` left out."""
    fingerprint: str
    """In hexadecimal, of the whole manifest, whatever `limit`; images' bytes are not part of it."""

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """The rows of these numbers, in order.

        Raises:
            StageError: they are not those that were counted.
            StageConfigError: the file is damaged.
        """
        ...

    def fingerprint_now(self) -> str | None:
        """The fingerprint of what lies there now; None if nothing can be read there."""
        ...


def changed(path: Path, found: str) -> StageError:
    """The error of a manifest whose content is not what was counted."""
    message = (
        f"{path}: changed while its rows were read ({found}); nothing was written. Leave it alone "
        f"while the array runs, and preprocess all slices of one manifest"
    )
    return StageError(message)
