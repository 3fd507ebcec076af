"""Whether the disk has room for the checkpoints and the export that a training will write. PURE."""

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
    """Why a checkpoint will find no room, with the remedy.

    Args:
        checkpoint_bytes: Of one.
        keep_last: How many stay; a new one is written before the oldest of them goes.
        num_present: How many lie there already.
        export_bytes: Of the exported model.
        free_bytes: What the file system has left; a quota may leave less.
        folder: Where they are written.
    """
    num_new = max(1, keep_last + 1 - num_present)
    needed_bytes = num_new * checkpoint_bytes + export_bytes
    if needed_bytes <= free_bytes:
        return None
    return (
        f"{folder} has {free_bytes / _GB:.2f} GB free, and what is still to be written takes "
        f"{needed_bytes / _GB:.2f} GB (checkpoints {num_new} x {checkpoint_bytes / _GB:.2f} GB, "
        f"the export {export_bytes / _GB:.2f} GB): make room, or lower checkpoint.keep_last "
        f"({keep_last})"
    )
