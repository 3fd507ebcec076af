"""Disk space that a folder takes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 512
"""Unit of `st_blocks` on Linux, whatever the file system's own blocks (stat(2))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskUse:
    """Space of a folder and everything below it."""

    num_bytes: int
    """Allocated space, as `du` and quotas count it: the holes of a sparse file take none."""
    num_files: int
    """Number of files of any kind; several hard links to one file count once."""
    linked_elsewhere_bytes: int
    """Part of `num_bytes` in files that have a hard link outside of the folder as well, so that
    removing the folder does not free it."""
    unreadable: tuple[Path, ...]
    """Folders that could not be listed; what is in them is not counted."""


def disk_use(path: Path) -> DiskUse:
    """Measure a folder, or a single file.

    Symbolic links are not followed: what they lead to is not counted. Files that appear or vanish
    meanwhile may be missing. Each file costs one `stat`, so a million files on a shared file system
    take minutes: tell the user before.

    Raises:
        OSError: `path` cannot be looked up.
    """
    unreadable: list[Path] = []
    num_bytes = num_files = 0
    links: dict[tuple[int, int], list[os.stat_result]] = {}
    for status in _statuses(path, unreadable):
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_folder:
            same = links.setdefault((status.st_dev, status.st_ino), [])
            same.append(status)
            if len(same) > 1:
                continue
        num_bytes += status.st_blocks * _BLOCK_BYTES
        num_files += not is_folder
    kept = [same[0] for same in links.values() if len(same) < same[0].st_nlink]
    return DiskUse(
        num_bytes=num_bytes,
        num_files=num_files,
        linked_elsewhere_bytes=sum(status.st_blocks for status in kept) * _BLOCK_BYTES,
        unreadable=tuple(sorted(unreadable)),
    )


def _statuses(path: Path, unreadable: list[Path]) -> Iterator[os.stat_result]:
    """Yield the status of a path and of everything below it."""
    status = path.lstat()
    yield status
    folders = [str(path)] if stat.S_ISDIR(status.st_mode) else []
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            unreadable.append(Path(folder))
