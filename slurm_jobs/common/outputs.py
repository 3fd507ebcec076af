"""The files that a stage made, named in its result, so that a resume can see what is left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def describe_outputs(folder: Path, files: Iterable[Path]) -> dict[str, int]:
    """Bytes of each of `files` by its path below `folder`: the value of `outputs` in a result."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)}
