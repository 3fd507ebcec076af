"""Copies on a node's local disk: their layout, users and eviction.

```
NODE_LOCAL_DIR/stage_in.lock            held briefly to take or evict a copy
               datasets/FINGERPRINT/
                   in-use               held, shared, by every rank that reads; mtime: last use
                   copying              held by the one process that copies; how large it will be
                   boot-id              of the node when the shards were written or verified
                   shards/              each appears whole under its name
                   index.arrow
```
Locks are `flock`s, which the kernel releases when their process ends, however it ends. They are
on the node's local disk, where they are reliable.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.stage_in.copy_plan import DiskRoom, OtherCopy
from slurm_jobs.base.files import atomic_writer, make_private_dir, remove_leftovers
from slurm_jobs.formats.dataset_folder import SHARDS_DIR

_LOCK_POLL_S = 0.1
_IN_USE_NAME = "in-use"
_COPYING_NAME = "copying"
_BOOT_NAME = "boot-id"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EVICTED = ".evicted-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """All copies of one user on one node."""

    root: Path
    """Node-local folder."""

    @contextmanager
    def locked(self, check_stop: Callable[[], None]) -> Iterator[None]:
        """Prevent other processes from taking or evicting a copy; `check_stop` may raise."""
        make_private_dir(self.root)
        with (self.root / "stage_in.lock").open("ab") as stream:
            while not _try_flock(stream, fcntl.LOCK_EX):
                check_stop()
                time.sleep(_LOCK_POLL_S)
            yield

    @property
    def _datasets(self) -> Path:
        return self.root / "datasets"

    def take(self, fingerprint: str) -> Lease:
        """Use a data set's copy, which may be empty; only within `locked`."""
        folder = self._datasets / fingerprint
        make_private_dir(folder / SHARDS_DIR)
        stream = (folder / _IN_USE_NAME).open("ab")
        try:
            fcntl.flock(stream, fcntl.LOCK_SH)
            os.utime(folder / _IN_USE_NAME)
        except OSError:
            stream.close()
            raise
        return Lease(folder, stream)

    def room(
        self,
        fingerprint: str,
        cap_bytes: int | None,
        others: list[OtherCopy],
        *,
        kept_bytes: int = 0,
    ) -> DiskRoom:
        """Return the room for shards of this data set, given `others`; only within `locked`.

        `kept_bytes` of it are for this data set's index, which is still to be copied.
        """
        pending = sum(
            other.num_bytes - _num_bytes(self._datasets / other.fingerprint) for other in others
        )
        return DiskRoom(
            free_bytes=shutil.disk_usage(self._datasets).free - pending - kept_bytes,
            cap_bytes=cap_bytes,
            present_bytes=_num_bytes(self._datasets / fingerprint) + kept_bytes,
        )

    def others(self, fingerprint: str) -> list[OtherCopy]:
        """Return the copies of other data sets, and remove remains; only within `locked`."""
        copies = []
        for folder in self._datasets.iterdir():
            if folder.name.startswith(_EVICTED):
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.name != fingerprint and folder.is_dir():
                copies.append(_describe(folder))
        return copies

    def evict(self, fingerprint: str) -> None:
        """Evict a copy; it never exists half removed; only within `locked`."""
        gone = self._datasets / f"{_EVICTED}{uuid.uuid4().hex[:12]}"
        (self._datasets / fingerprint).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


class Lease:
    """Right to read a copy: it is not evicted until `release`, or this process's end."""

    def __init__(self, folder: Path, stream: IO[bytes]) -> None:
        self.folder = folder
        self._in_use = stream
        self._copying: IO[bytes] | None = None

    def release(self) -> None:
        """Release it, and record its use until now."""
        self.end_copying()
        if not self._in_use.closed:
            with suppress(OSError):
                os.utime(self._in_use.fileno())
            self._in_use.close()

    def begin_copying(self) -> bool:
        """Check whether only this process may write to the copy now; only within `Store.locked`."""
        stream = (self.folder / _COPYING_NAME).open("ab")
        if not _try_flock(stream, fcntl.LOCK_EX):
            stream.close()
            return False
        self._copying = stream
        return True

    def end_copying(self) -> None:
        """Let other processes write to the copy."""
        if self._copying is not None:
            self._copying.close()

    def reserve(self, num_bytes: int) -> None:
        """Record the copy's final size; valid until `end_copying`."""
        (self.folder / _COPYING_NAME).write_text(str(num_bytes))

    def progress(self) -> tuple[int, int]:
        """Return values that change while another process copies: bytes, and last verification."""
        with suppress(OSError):
            verified_ns = (self.folder / _COPYING_NAME).stat().st_mtime_ns
            return _num_bytes(self.folder), verified_ns
        return 0, 0

    def note_progress(self) -> None:
        """Signal to processes that wait for this copy that a shard was verified."""
        with suppress(OSError):
            os.utime(self.folder / _COPYING_NAME)

    def present(self) -> dict[str, int]:
        """Return the sizes in bytes of the local shards, by name."""
        with os.scandir(self.folder / SHARDS_DIR) as entries:
            return {
                entry.name: entry.stat().st_size
                for entry in entries
                if not entry.name.startswith(".")
            }

    def clean(self) -> None:
        """Remove what a killed copy left; only for the copying process."""
        remove_leftovers(self.folder)
        remove_leftovers(self.folder / SHARDS_DIR)

    def of_this_boot(self) -> bool:
        """Check whether the node has not rebooted since the shards were written or verified.

        After a reboot, data that had not reached the disk is lost, because copies are not
        synced.
        """
        with suppress(OSError):
            return (self.folder / _BOOT_NAME).read_bytes() == _BOOT_ID.read_bytes()
        return False

    def note_boot(self) -> None:
        """Record that all local shards are valid for this boot of the node."""
        with atomic_writer(self.folder / _BOOT_NAME, sync=False) as stream:
            stream.write(_BOOT_ID.read_bytes())


def _try_flock(stream: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe(folder: Path) -> OtherCopy:
    with (folder / _IN_USE_NAME).open("ab") as stream:
        used_unix_s = os.fstat(stream.fileno()).st_mtime
        in_use = not _try_flock(stream, fcntl.LOCK_EX)
    present = _num_bytes(folder)
    return OtherCopy(
        fingerprint=folder.name,
        num_bytes=max(present, _reserved_bytes(folder)) if in_use else present,
        used_unix_s=used_unix_s,
        in_use=in_use,
    )


def _reserved_bytes(folder: Path) -> int:
    """Return the final size of a copy that is being made now; 0 if none is."""
    with suppress(FileNotFoundError, ValueError), (folder / _COPYING_NAME).open("rb") as stream:
        return 0 if _try_flock(stream, fcntl.LOCK_SH) else int(stream.read())
    return 0


def _num_bytes(folder: Path) -> int:
    """Return the size of all files in a copy, partial ones included; may change meanwhile."""
    total = 0
    for path in (folder, folder / SHARDS_DIR):
        with suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size if entry.is_file() else 0
    return total
