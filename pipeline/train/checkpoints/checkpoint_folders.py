"""Folders of checkpoints: named by their step, and complete if they exist.

checkpoints/step-00000250/            a complete checkpoint, `checkpoint.json` written last
checkpoints/.step-00000300.2.tmp/     one that attempt 2 was writing
checkpoints/.unreadable-step-...      one that failed its checksums, kept for inspection

An earlier attempt is asked to end, but on a node that Slurm lost, or under a runner that died,
it may still write here for a while. So a folder is renamed before it is removed, and an
existing folder is checked.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from pipeline.train.checkpoints.checkpoint_record import (
    DAMAGE,
    NO_FILE,
    CheckpointInfo,
    FileFacts,
    checkpoint_name,
    read_info,
    reading,
)
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import sync_dir

_STEP_NAME = re.compile(r"step-(\d{8,})")


def checkpoint_dir(root: Path, step: int) -> Path:
    """Return the path of the checkpoint after `step` steps."""
    return root / checkpoint_name(step)


def temp_checkpoint_dir(root: Path, step: int, attempt: int) -> Path:
    """Return the path where `attempt` writes it before it is complete."""
    return root / f".{checkpoint_name(step)}.{attempt}.tmp"


def list_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Return steps and folders of all complete checkpoints, newest first."""
    if not root.is_dir():
        return []
    matches = ((_STEP_NAME.fullmatch(path.name), path) for path in root.iterdir())
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def hash_file(path: Path) -> FileFacts:
    """Return size and checksum of a file.

    Raises:
        FileNotFoundError: it is a pipe or a device, of which reading may never end.
        OSError: it cannot be read.
    """
    digest = xxhash.xxh3_128()
    buffer = memoryview(bytearray(1 << 18))
    num_bytes = 0
    with os.fdopen(_open_file(path), "rb", buffering=0) as stream:
        while num_read := stream.readinto(buffer):
            digest.update(buffer[:num_read])
            num_bytes += num_read
    return FileFacts(num_bytes=num_bytes, xxh3=digest.hexdigest())


def _open_file(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise FileNotFoundError(errno.ENOENT, "it is a pipe or a device", str(path))


def damaged_files(folder: Path, files: Mapping[str, FileFacts]) -> list[str]:
    """Describe each of `files` that does not match its record.

    Raises:
        StageError: the file system failed.
    """
    problems = []
    for name, expected in files.items():
        try:
            with reading(folder / name):
                actual = hash_file(folder / name)
        except NO_FILE as error:
            problems.append(f"{name}: {error.strerror}")
            continue
        if actual != expected:
            problems.append(
                f"{name}: {actual.num_bytes} bytes, xxh3 {actual.xxh3[:12]}; "
                f"written were {expected.num_bytes} bytes, xxh3 {expected.xxh3[:12]}"
            )
    return problems


def share_of_files(
    files: Mapping[str, FileFacts], rank: int, num_ranks: int
) -> dict[str, FileFacts]:
    """Return the files that `rank` checks: each file is checked by one rank."""
    return {name: files[name] for name in sorted(files)[rank::num_ranks]}


def publish(temp_dir: Path, final_dir: Path) -> None:
    """Rename a finished folder to its final name, durably, once all its files are on disk.

    Raises:
        OSError: `final_dir` is not empty (`ENOTEMPTY`).
    """
    for path in temp_dir.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    sync_dir(temp_dir)
    temp_dir.rename(final_dir)
    sync_dir(final_dir.parent)


def publish_checkpoint(temp_dir: Path, final_dir: Path, info: CheckpointInfo, attempt: int) -> None:
    """Publish a checkpoint; a valid one that an earlier attempt published first is kept.

    A damaged one, or one of another config or data set, is set aside.

    Raises:
        StageError: the file system failed while the existing one was checked; it stays.
    """
    try:
        publish(temp_dir, final_dir)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        with suppress(*DAMAGE):
            published = read_info(final_dir)
            if _training(published) == _training(info) and not damaged_files(
                final_dir, published.files
            ):
                remove_folder(temp_dir)
                return
        set_aside(final_dir, attempt)
        publish(temp_dir, final_dir)


def _training(info: CheckpointInfo) -> tuple[str, str, int, str]:
    return info.config_fingerprint, info.dataset_fingerprint, info.work.num_again, info.follows


def set_aside(folder: Path, attempt: int) -> Path | None:
    """Rename an unreadable checkpoint, so that its step can be saved again; return the new path.

    None if another writer has renamed it. One attempt may set the same step aside twice.
    """
    aside = folder.with_name(f".unreadable-{folder.name}.{attempt}.{uuid.uuid4().hex[:12]}")
    return _moved(folder, aside)


def set_other_work_aside(folder: Path, attempt: int) -> Path | None:
    """Set a checkpoint of other work aside; return the new path, None as in `set_aside`."""
    root = folder.parent.resolve()  # it may be a link to another disk
    renamed = root.with_name(f"{root.name}.before-attempt-{attempt}")
    renamed.mkdir(exist_ok=True)
    return _moved(folder, renamed / f"{folder.name}.{uuid.uuid4().hex[:12]}")


def _moved(folder: Path, place: Path) -> Path | None:
    try:
        return folder.rename(place)
    except FileNotFoundError:
        return None


def remove_folder(folder: Path) -> None:
    """Rename a folder, then remove it, so that a partly removed folder is never used.

    `remove_leftovers` handles what a kill leaves; concurrent removal is not an error.
    """
    doomed = folder.with_name(f".{folder.name.strip('.')}.{uuid.uuid4().hex[:12]}.tmp")
    with suppress(FileNotFoundError):
        folder.rename(doomed)
        shutil.rmtree(doomed)


def remove_leftovers(root: Path, name: str = "step-*") -> None:
    """Remove what killed attempts were writing, or removing, under the name `name`."""
    for path in sorted(root.glob(f".{name}.*.tmp")):
        remove_folder(path)


def keep_newest(root: Path, keep_last: int, info: CheckpointInfo) -> Sequence[Path]:
    """Remove all but the newest checkpoints of the training that wrote `info`; return them.

    Other trainings' do not count and stay: a late writer of former work may have higher steps.
    """
    ours = []
    for _, path in list_checkpoints(root):
        with suppress(*DAMAGE, StageError):  # keeping one is always safe
            if _training(read_info(path)) == _training(info):
                ours.append(path)
    for path in ours[keep_last:]:
        remove_folder(path)
    return ours[keep_last:]
