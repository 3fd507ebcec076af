"""One file from the shared file system to the local disk, with its checksum, read once.

Nothing is synced to the disk: a copy is a cache whose every sample is compared
with its checksum when it is read, and whose shards are verified anew once the
node has been started again (`store`). To sync would make each shard wait for
the disk, which `cp` does not do either.

`copy_file_range` and `sendfile` were measured and did not help: the checksum
needs the bytes in any case.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from pipeline.data.file_system import is_on_this_machine
from pipeline.stage_in.pace import Pace
from slurm_jobs.common.errors import StageError
from slurm_jobs.common.files import atomic_writer

NUM_TRIES = 2
"""A shard is copied again where its checksum is wrong or it could not be read, and then given up:
the fault of a moment, on the way, is told from a damaged file."""


class _WrongHashError(Exception):
    """Keeps a copy with the wrong content from taking its name."""


def copy_verified(
    source: Path,
    target: Path,
    *,
    xxh3: str | None,
    pace: Pace,
    check_stop: Callable[[], None],
    note_block: Callable[[], None] = lambda: None,
) -> None:
    """Copy; `target` appears whole, or not at all.

    Args:
        source: on the shared file system.
        target: its folder exists.
        xxh3: what xxh3-64 of the content must be, in hexadecimal; None where it is not known.
        pace: how fast `source` may be read.
        check_stop: called before each block; may raise.
        note_block: called after each block.

    Raises:
        StageError: the source cannot be read or does not match, twice.
        OSError: of the local disk.
    """
    for is_last in (False,) * (NUM_TRIES - 1) + (True,):
        try:
            found = _copy_hashed(source, target, xxh3, pace, check_stop, note_block=note_block)
        except StageError as error:
            if is_last or isinstance(error.__cause__, FileNotFoundError):
                raise
            continue
        if xxh3 in (found, None):
            return
    message = (
        f"{source}: copied twice, xxh3 {found}, expected {xxh3}; the file is "
        f"damaged on the shared file system: run consolidate again"
    )
    raise StageError(message)


def is_sound(
    path: Path,
    *,
    xxh3: str,
    check_stop: Callable[[], None],
    note_block: Callable[[], None] = lambda: None,
) -> bool:
    """Whether a file on the local disk matches its checksum; False where it cannot be read."""
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


def _copy_hashed(
    source: Path,
    target: Path,
    expected: str | None,
    pace: Pace,
    check_stop: Callable[[], None],
    *,
    note_block: Callable[[], None],
) -> str:
    """The checksum that was found; the target appears only if it is as expected."""
    digest, buffer = xxhash.xxh3_64(), memoryview(bytearray(pace.block_bytes))
    with suppress(_WrongHashError), atomic_writer(target, sync=False) as writer:
        with _reading(source) as reader:
            while num_read := _read_into(reader, buffer, source):
                pace.wait(num_read, check_stop)
                digest.update(buffer[:num_read])
                writer.write(buffer[:num_read])
                note_block()
        if expected not in (digest.hexdigest(), None):
            raise _WrongHashError
    return digest.hexdigest()


@contextmanager
def _reading(source: Path) -> Iterator[io.FileIO]:
    """The file, whose pages are let go after it where they came over the network.

    Nobody on this node reads it there again, and the local copy wants the memory. On a file
    system of this machine they may be others' pages.
    """
    try:
        reader = io.FileIO(source)
    except FileNotFoundError as error:
        message = f"{source}: missing; run consolidate again"
        raise StageError(message) from error
    except OSError as error:
        raise _unreadable(source, error) from error
    with reader:
        with suppress(OSError):  # advice: not every file system takes it
            os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield reader
        if not is_on_this_machine(source):
            with suppress(OSError):
                os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_into(reader: io.FileIO, buffer: memoryview, source: Path) -> int:
    """Whoever copies must not take an error of the shared file system for the local disk's."""
    try:
        return reader.readinto(buffer)
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: OSError) -> StageError:
    return StageError(f"{source}: the file cannot be read: {error.strerror}")
