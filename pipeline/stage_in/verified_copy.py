"""Copy of one file from the shared file system to the local disk, with its checksum, in one read.

Nothing is synced to the disk: a copy is a cache. Every sample is compared with its checksum
when it is read, and shards are verified again after the node has rebooted (`store`). Syncing
would make each shard wait for the disk, which `cp` does not do either.

`copy_file_range` and `sendfile` were measured and did not help: the checksum needs the bytes in
any case.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from pipeline.data.shard_reading.local_disks import is_on_this_machine
from pipeline.stage_in.pace import Pace
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import atomic_writer

NUM_TRIES = 2
"""Attempts to copy a shard with a wrong checksum or a read error: a second attempt
distinguishes a transient fault from a damaged file."""


class _WrongHashError(Exception):
    """Prevents a copy with wrong content from getting its name."""


def copy_verified(
    source: Path,
    target: Path,
    *,
    xxh3: str | None,
    pace: Pace,
    check_stop: Callable[[], None],
    note_block: Callable[[], None] = lambda: None,
) -> None:
    """Copy; `target` appears complete, or not at all.

    Args:
        source: On the shared file system.
        target: Its folder exists.
        xxh3: Expected xxh3-64 of the content, in hexadecimal; None if unknown.
        pace: Limit for reading `source`.
        check_stop: Called before each block; may raise.
        note_block: Called after each block.

    Raises:
        StageError: the source cannot be read or does not match, twice.
        OSError: of the local disk.
    """
    buffer = memoryview(bytearray(pace.block_bytes))
    for is_last in (False,) * (NUM_TRIES - 1) + (True,):
        digest = xxhash.xxh3_64()
        try:
            with suppress(_WrongHashError), atomic_writer(target, sync=False) as writer:
                with _reading(source) as reader:
                    while num_read := _read_into(reader, buffer, source):
                        pace.wait(num_read, check_stop)
                        digest.update(buffer[:num_read])
                        writer.write(buffer[:num_read])
                        note_block()
                if xxh3 not in (digest.hexdigest(), None):
                    raise _WrongHashError
                return
        except StageError as error:
            if is_last or isinstance(error.__cause__, FileNotFoundError):
                raise
    message = (
        f"{source}: copied twice, xxh3 {digest.hexdigest()}, expected {xxh3}; the file is "
        f"damaged on the shared file system: run consolidate again"
    )
    raise StageError(message)


def is_intact(
    path: Path,
    *,
    xxh3: str,
    check_stop: Callable[[], None],
    note_block: Callable[[], None] = lambda: None,
) -> bool:
    """Check whether a file on the local disk matches its checksum; False if it cannot be read."""
    digest, buffer = xxhash.xxh3_64(), memoryview(bytearray(Pace(path, None).block_bytes))
    try:
        with path.open("rb", buffering=0) as stream:
            while num_read := stream.readinto(buffer):
                check_stop()
                digest.update(buffer[:num_read])
                note_block()
    except OSError:
        return False
    return digest.hexdigest() == xxh3


@contextmanager
def _reading(source: Path) -> Iterator[io.FileIO]:
    """Open the file; afterwards drop its pages if they came over the network.

    They are not read again on this node, and the local copy needs the memory. On a local file
    system other processes may use these pages.
    """
    try:
        reader = io.FileIO(source)
    except OSError as error:
        raise unreadable(source, error) from error
    with reader:
        with suppress(OSError):  # advice: not every file system supports it
            os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield reader
        if not is_on_this_machine(source):
            with suppress(OSError):
                os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_into(reader: io.FileIO, buffer: memoryview, source: Path) -> int:
    """Read a block, so that errors of the shared file system are not taken for the local disk's."""
    try:
        return reader.readinto(buffer)
    except OSError as error:
        raise unreadable(source, error) from error


def unreadable(source: Path, error: OSError) -> StageError:
    """Return the error for a file of the shared file system that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return StageError(f"{source}: missing; run consolidate again")
    return StageError(f"{source}: the file cannot be read: {error.strerror}")
