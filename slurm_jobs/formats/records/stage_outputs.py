"""Files that a stage lists in its result, so that a resume can check them."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.base.json_values import is_count


def describe_outputs(folder: Path, files: Iterable[Path]) -> dict[str, int]:
    """Return the size of each of `files` by its path below `folder`, as `outputs` of a result."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)}


def named_outputs(result: Any) -> Mapping[str, int]:
    """Return the files that a stage's result lists, with sizes; empty if it lists none."""
    outputs = result.get("outputs") if isinstance(result, Mapping) else None
    return outputs if outputs and are_outputs(outputs) else {}


def are_outputs(outputs: Any) -> bool:
    """Check for sizes by path, which is what `outputs` in a result must be."""
    return isinstance(outputs, Mapping) and all(
        isinstance(name, str) and is_count(size) for name, size in outputs.items()
    )


def wrong_outputs(folder: Path, outputs: Mapping[str, int]) -> list[str]:
    """Return which of a result's `outputs` are no files in `folder` or have another size."""
    return [name for name, num_bytes in outputs.items() if file_bytes(folder / name) != num_bytes]


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def file_bytes(path: Path) -> int | None:
    """Return the size of a regular file; None if the path leads to none, or can lead to none."""
    try:
        status = path.stat()
    except ValueError:  # a name with NUL
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    return status.st_size if stat.S_ISREG(status.st_mode) else None
