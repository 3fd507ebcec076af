"""Folders and files of checkpoints, their descriptions, and how they are read and written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
import xxhash
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from slurm_jobs.shared.configs.train import MAY_CHANGE, TrainConfig
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.files import dump_json, read_json, sync_dir, write_json_atomic

# Record of a checkpoint: `checkpoint.json`, the last file that is written into it.
#
# A record is damaged if it is missing or has other content than was written. A failing file
# system (`EIO`, `ESTALE`) does not mean damage: it fails the attempt, and another attempt reads
# the same checkpoint.


INFO_NAME = "checkpoint.json"
_OWN_HASH = "xxh3"
"""Key of `checkpoint.json`: xxh3-128 over all its other values. Older ones have none."""
NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors for a path where a file should exist."""
DAMAGE = (*NO_FILE, ValueError, TypeError, KeyError)
"""Errors of `read_info` on a damaged record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file of a checkpoint, as written."""

    num_bytes: int
    xxh3: str
    """xxh3-128 in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of the stage that a checkpoint belongs to; a resume may give the stage other work."""

    fingerprint: str = ""
    """Fingerprint of the stage's config, code and parents; empty in old checkpoints."""
    num_again: int = 0
    """Number of times the stage was requested again, complete or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointInfo:
    """Content of a checkpoint's record."""

    step: int
    """Optimizer steps completed. With the seed it determines the position in the data, too."""
    loss: float
    """Loss of the last step."""
    num_ranks: int
    config_fingerprint: str
    config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    files: Mapping[str, FileFacts]
    versions: Mapping[str, str]
    work: Work = Work()
    """Work of the stage when it was written."""
    base: str = ""
    """Hash of the weights that are not trained, and not stored here; empty if all are trained."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Identity of an attempt's training, which a checkpoint must match to be loaded."""

    lasting_config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    work: Work
    """Work of this attempt's stage."""
    versions: Mapping[str, str]
    """Versions of the libraries that affect results."""
    base: str = ""
    """Hash of the weights that are not trained; empty if all are."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


def checkpoint_name(step: int) -> str:
    """Return the name of the folder with the state after `step` steps."""
    return f"step-{step:08d}"


def write_info(folder: Path, info: CheckpointInfo) -> None:
    """Write `checkpoint.json`, the last file of a checkpoint, with its own checksum."""
    values = asdict(info)
    write_json_atomic(folder / INFO_NAME, {**values, _OWN_HASH: _hash_values(values)})


def _hash_values(values: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(dump_json(values).encode())


def record_hash(info: CheckpointInfo) -> str:
    """Return the hash of a checkpoint's record, which includes the hashes of its files."""
    return _hash_values(asdict(info))


def read_info(folder: Path) -> CheckpointInfo:
    """Read the record of a checkpoint that has its final name.

    Raises:
        FileNotFoundError, ValueError, TypeError, KeyError: the file is missing, damaged, or of
            another step than the folder's name.
        StageError: the file system failed.
    """
    with reading(folder / INFO_NAME):
        record = read_json(folder / INFO_NAME)
    values = _mapping(record, "the record")
    written = values.pop(_OWN_HASH, None)
    if written is not None and written != (actual := _hash_values(values)):
        message = f"its values have xxh3 {actual[:12]}, written were {written[:12]}"
        raise ValueError(message)
    if folder.name != checkpoint_name(values["step"]):
        message = f"step {values['step']} in a folder called {folder.name}"
        raise ValueError(message)
    listed = _mapping(values["files"], "`files`")
    files = {name: FileFacts(**facts) for name, facts in listed.items()}
    work = Work(**_mapping(values.get("work", {}), "`work`"))
    return CheckpointInfo(**{**values, "files": files, "work": work})


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        message = f"{name} is {value!r:.40}, expected a mapping"
        raise ValueError(message)  # noqa: TRY004 - a damaged file, not a caller's mistake
    return value


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Distinguish a missing file, which is damage, from a failing file system."""
    try:
        yield
    except NO_FILE:
        raise
    except OSError as error:
        message = (
            f"{path}: cannot be read now ({error}); the checkpoint is kept, and another attempt "
            "reads it again"
        )
        raise StageError(message) from error


# Folders of checkpoints: named by their step, and complete if they exist.
#
# checkpoints/step-00000250/            a complete checkpoint, `checkpoint.json` written last
# checkpoints/.step-00000300.2.tmp/     one that attempt 2 was writing
# checkpoints/.unreadable-step-...      one that failed its checksums, kept for inspection
#
# An earlier attempt is asked to end, but on a node that Slurm lost, or under a runner that died,
# it may still write here for a while. So a folder is renamed before it is removed, and an
# existing folder is checked.


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


# Writing of one rank's part of a checkpoint: to disk and with its checksum.


class PartWriter(dcp.FileSystemWriter):
    """Syncs its files and reads them back for the checksum, on the rank that wrote them."""

    def __init__(self, folder: Path, rank: int) -> None:
        """Start a file.

        No copy runs ahead of the writing. On an H200 that pinned the whole state and took 2.5 s
        for 1 GB; without it, 2.3 s. With a state on the host, torch would also wait for all
        work queued on the GPU.
        """
        super().__init__(
            folder, single_file_per_rank=True, sync_files=True, per_thread_copy_ahead=0
        )
        self._folder = folder
        self._own_rank = rank
        self.parts: dict[str, FileFacts] = {}
        """This rank's files by name, once they are on disk."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's file; torch reports an error to all ranks, and waits for all to end.

        When a disk fills up between two tensors, torch's archive reports a wrong position; only
        the previous error says that no space is left.

        Raises:
            OSError: the file system failed.
        """
        try:
            written = super().write_data(plan, planner)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        names = self._folder.glob(f"__{self._own_rank}_*")
        self.parts = {path.name: hash_file(path) for path in names}
        return written


# Part of a config that must not change for a checkpoint to be continued.


def lasting_config(config: TrainConfig, num_steps: int) -> dict[str, Any]:
    """Return the part of the config that must not change between attempts, as JSON values."""
    values = asdict(config)
    for name in (*MAY_CHANGE, "num_epochs"):
        del values[name]
    # As in a checkpoint's file: tuples become lists.
    return json.loads(json.dumps({**values, "num_steps": num_steps}))


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return a fingerprint that is equal for equal values, whatever their order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return `optimizer.learning_rate: 0.1 then, 0.2 now` for every value that differs."""
    then, now = dict(_flatten(before)), dict(_flatten(after))
    missing = "(not there)"
    values = {key: (then.get(key, missing), now.get(key, missing)) for key in then.keys() | now}
    return [f"{key}: {a} then, {b} now" for key, (a, b) in sorted(values.items()) if a != b]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
