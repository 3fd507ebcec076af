"""The shards from the shared file system to this node's own disk, verified, once a node.

Every rank of a node calls `stage_in`; a lock on the node-local disk (where
`flock` can be trusted) lets one copy and the others wait. The copy is keyed by
the data set's fingerprint, kept for the next attempt, and shared by all runs
with that data set: a call takes away only what it wrote itself. Each file
appears whole under its name, so that what a killed copy left behind is taken
up where it is sound. Where the disk is too small, may not be written or is
broken, training reads the shared folder. Index and processor are read there in
any case: once, and they are small.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from pipeline.data.info import SHARDS_DIR, DatasetInfo, ShardInfo, read_dataset_info
from slurm_jobs.common.errors import StageError, StageStoppedError
from slurm_jobs.common.files import atomic_writer, make_private_dir, write_json_atomic
from slurm_jobs.common.stop import stop_requested

_BLOCK_BYTES = 8 << 20
_LOCK_POLL_S = 0.1
_SPARE_BYTES = 64 << 20  # left free on the local disk for whoever else writes there
_MARKER_NAME = "complete.json"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_WRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_BROKEN = frozenset({errno.EIO})


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInResult:
    """Where the shards are to be read from on this node."""

    folder: Path
    """Has `shards/`: the local copy's, or the shared folder where it does not fit."""
    num_bytes: int
    """Of all shards."""
    copied: bool
    """Whether this call copied any shard; False for the ranks that waited."""
    duration_s: float
    reason: str = ""
    """Why the shared folder is used; empty for a local copy."""


def stage_in(dataset_dir: Path, node_local_dir: Path) -> StageInResult:
    """Make sure that the node has a verified copy of the data set's shards.

    Raises:
        StageError: a shard does not match its checksum, twice, or cannot be read.
        StageStoppedError: asked to stop while copying or waiting.
    """
    called_unix_s, started_s = time.time(), time.perf_counter()
    info = read_dataset_info(dataset_dir)
    folder = node_local_dir / "datasets" / info.fingerprint
    reason, num_copied = "", 0
    try:
        make_private_dir(node_local_dir)
        with _locked(node_local_dir / "stage_in.lock"):
            if not _verified_since(folder, called_unix_s):
                num_copied, reason = _complete(dataset_dir, folder, info)
    except OSError as error:
        if error.errno not in _FULL | _NOT_WRITABLE | _BROKEN:
            raise
        reason = f"{error.filename or node_local_dir}: {error.strerror}"
    if reason:
        warnings.warn(f"training reads {dataset_dir} itself: {reason}", stacklevel=2)
    return StageInResult(
        folder=dataset_dir if reason else folder,
        num_bytes=info.num_bytes,
        copied=num_copied > 0,
        duration_s=time.perf_counter() - started_s,
        reason=reason,
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _check_stop()
                time.sleep(_LOCK_POLL_S)
        yield


def _check_stop() -> None:
    if stop_requested():
        message = "stopped while the data set was staged in"
        raise StageStoppedError(message)


def _verified_since(folder: Path, unix_s: float) -> bool:
    """Whether another rank verified the copy after this one had asked (one clock: one node).

    A marker that a crash of the node left empty or damaged says nothing: the copy is verified.
    """
    try:
        return json.loads((folder / _MARKER_NAME).read_bytes())["verified_unix_s"] >= unix_s
    except (FileNotFoundError, ValueError, TypeError, LookupError):
        return False


def _complete(dataset_dir: Path, folder: Path, info: DatasetInfo) -> tuple[int, str]:
    """Copy what is missing or damaged: the number of shards copied, and why not if it is too much.

    The marker goes first and comes back last.
    """
    make_private_dir(folder / SHARDS_DIR)
    (folder / _MARKER_NAME).unlink(missing_ok=True)
    for leftover in (folder / SHARDS_DIR).glob(".*.tmp"):  # of a copy that was killed
        leftover.unlink()
    wanted = [shard for shard in info.shards if not _is_sound(folder / SHARDS_DIR, shard)]
    num_bytes, free = sum(s.num_bytes for s in wanted), shutil.disk_usage(folder).free
    if wanted and num_bytes + _SPARE_BYTES > free:
        return 0, f"{folder}: {free} bytes free, {num_bytes + _SPARE_BYTES} needed"
    _copy_shards(dataset_dir / SHARDS_DIR, folder / SHARDS_DIR, wanted)
    _mark(folder)
    return len(wanted), ""


def _copy_shards(source: Path, target: Path, shards: list[ShardInfo]) -> None:
    """Copy all of `shards`; where the disk is full before the last, none of them stays.

    A part of a copy helps nobody and fills the disk. The shards that were sound
    before may be another run's, which reads them at this moment.
    """
    written = []
    try:
        for shard in shards:
            _copy_shard(source, target, shard)
            written.append(target / shard.name)
    except OSError as error:
        if error.errno in _FULL:
            for path in written:
                path.unlink(missing_ok=True)
        raise


def _mark(folder: Path) -> None:
    """Say that the copy is verified; on a full disk the other ranks verify it themselves."""
    try:
        write_json_atomic(folder / _MARKER_NAME, {"verified_unix_s": time.time()})
    except OSError as error:
        if error.errno not in _FULL:
            raise


def _is_sound(folder: Path, shard: ShardInfo) -> bool:
    path = folder / shard.name
    if not path.exists() or path.stat().st_size != shard.num_bytes:
        return False
    digest = xxhash.xxh3_64()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            _check_stop()
            digest.update(block)
    return digest.hexdigest() == shard.xxh3


def _copy_shard(source: Path, target: Path, shard: ShardInfo) -> None:
    """Copy a shard, and once more if its checksum is wrong."""
    for _ in range(2):
        found = _copy_hashed(source / shard.name, target / shard.name, shard.xxh3)
        if found == shard.xxh3:
            return
    message = (
        f"{source / shard.name}: copied twice, xxh3 {found}, expected {shard.xxh3}; the shard is "
        f"damaged on the shared file system: run consolidate again"
    )
    raise StageError(message)


class _WrongHashError(Exception):
    """Keeps a copy with the wrong content from taking its name."""


def _copy_hashed(source: Path, target: Path, expected: str) -> str:
    """Copy and hash in one pass; the target appears only if its xxh3-64 is as expected."""
    digest = xxhash.xxh3_64()
    with suppress(_WrongHashError), atomic_writer(target) as writer:
        for block in _blocks(source):
            _check_stop()
            digest.update(block)
            writer.write(block)
        if digest.hexdigest() != expected:
            raise _WrongHashError
    return digest.hexdigest()


def _blocks(source: Path) -> Iterator[bytes]:
    """The content of a shard on the shared file system.

    Raises:
        StageError: it cannot be read. Whoever copies must not take that for the local disk's fault.
    """
    try:
        with source.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
    except FileNotFoundError as error:
        message = f"{source}: missing; run consolidate again"
        raise StageError(message) from error
    except OSError as error:
        message = f"{source}: the shard cannot be read: {error.strerror}"
        raise StageError(message) from error
