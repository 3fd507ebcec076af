"""Check that the disk has room for the checkpoints and the export of a training. PURE."""

from __future__ import annotations

_GB = 1e9


def disk_warning(
    *,
    checkpoint_bytes: int,
    keep_last: int,
    num_present: int,
    export_bytes: int,
    free_bytes: int,
    folder: str,
) -> str | None:
    """Return a warning that a checkpoint will not fit, with the remedy.

    Args:
        checkpoint_bytes: Size of one.
        keep_last: Number of checkpoints to keep; a new one is written before the oldest is
            removed.
        num_present: Number of existing checkpoints.
        export_bytes: Size of the exported model.
        free_bytes: Free bytes of the file system; a quota may leave less.
        folder: Their folder.
    """
    num_new = max(1, keep_last + 1 - num_present)
    needed_bytes = num_new * checkpoint_bytes + export_bytes
    if needed_bytes <= free_bytes:
        return None
    return (
        f"{folder} has {free_bytes / _GB:.2f} GB free, but {needed_bytes / _GB:.2f} GB are still "
        f"to be written (checkpoints {num_new} x {checkpoint_bytes / _GB:.2f} GB, the export "
        f"{export_bytes / _GB:.2f} GB): free space, or lower checkpoint.keep_last ({keep_last})"
    )
