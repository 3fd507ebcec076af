"""Check of the free disk space for checkpoints and the export."""

from __future__ import annotations

import math
from pathlib import Path


def disk_warning(
    *,
    checkpoint_bytes: int,
    keep_last: int,
    num_present: int,
    export_bytes: int,
    free_bytes: int,
    folder: Path,
) -> str | None:
    """Return a warning that a checkpoint will not fit, with the remedy.

    A new checkpoint is written before the oldest of `keep_last` is removed. A quota may leave less
    than `free_bytes`.
    """
    num_new = max(1, keep_last + 1 - num_present)
    needed_bytes = num_new * checkpoint_bytes + export_bytes
    if needed_bytes <= free_bytes:
        return None
    # Round free down and needed up, so that they never look equal.
    free_gb, needed_gb = math.floor(free_bytes / 1e7) / 100, math.ceil(needed_bytes / 1e7) / 100
    return (
        f"{folder} has {free_gb:.2f} GB free, but {needed_gb:.2f} GB are still "
        f"to be written (checkpoints {num_new} x {checkpoint_bytes / 1e9:.2f} GB, the export "
        f"{export_bytes / 1e9:.2f} GB): free space, or lower checkpoint.keep_last ({keep_last})"
    )
