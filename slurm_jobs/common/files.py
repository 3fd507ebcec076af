"""Files that appear whole or not at all, and files that are created exactly once; all private.

Appends and locks are not to be trusted on NFS; `rename` and `link` are.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from slurm_jobs.common.errors import DamagedFileError

_REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "your quota is used up: remove files, or ask for more",
    errno.EROFS: "its file system is mounted read-only: ask the administrators",
    errno.EACCES: "give yourself the rights to it",
    errno.EPERM: "give yourself the rights to it",
    errno.ESTALE: "its file server was restarted or the folder replaced: look whether it is there",
    errno.ENOENT: "a folder was removed, or its file system is away: look whether it is there",
}


def storage_problem(error: OSError) -> str:
    """Return `PATH: No space left on device; free space on its file system` in one line."""
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, "look whether its file system works")
    return f"{where}{error.strerror or error}; {remedy}"


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there.

    `Path.glob` and `Path.is_dir` take a folder that cannot be read for an empty one.

    Raises:
        OSError: it is there, as far as can be seen, and cannot be listed.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone: quick
    except (FileNotFoundError, NotADirectoryError):
        return []


def last_json_number(folder: Path) -> int:
    """Return the highest number of the files `NUMBER.json` in a folder; 0 if there is none."""
    stems = (n.removesuffix(".json") for n in names_in(folder) if n.endswith(".json"))
    return max((int(stem) for stem in stems if stem.isdecimal()), default=0)


PRIVATE_DIR_MODE = 0o700
PRIVATE_FILE_MODE = 0o600
PRIVATE_UMASK = 0o077


def make_private_dir(path: Path) -> None:
    """Create `path` and its missing parents, the new ones readable by their owner alone."""
    missing = []
    folder = path
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_DIR_MODE, exist_ok=True)


@contextmanager
def private_umask() -> Iterator[None]:
    """Whatever this process and its children create in the block is their owner's alone.

    The mask is the process's: threads beside this one are held to it, too.
    """
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


class _NamedFile(io.FileIO):
    """Open for writing; an error of a write, as on a full disk, says which file it was to become.

    That of the system call has no name. What else fails while the file is written, as a read of
    another one, keeps its own.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self._path = path
        super().__init__(fd, "wb")

    def write(self, data: Any, /) -> int:
        with naming(self._path):
            return super().write(data)

    def close(self) -> None:
        """Where a file system over a network tells of a quota."""
        with naming(self._path):
            super().close()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give `path` to an error of the file system that names no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _create(temp: Path, path: Path) -> IO[bytes]:
    """A new file, its owner's alone whatever the umask allows; errors name `path`."""
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    block_bytes = max(os.fstat(fd).st_blksize, io.DEFAULT_BUFFER_SIZE)
    return io.BufferedWriter(_NamedFile(fd, path), block_bytes)


def _sync(stream: IO[bytes], path: Path) -> None:
    stream.flush()
    with naming(path):
        os.fsync(stream.fileno())


def _temp_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def sync_dir(folder: Path) -> None:
    """Make a rename in `folder` durable. File systems that cannot sync a folder are left alone."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def atomic_writer(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for binary writing that takes the name `path` only when the block ends well.

    It is its owner's alone, as everything of a run. On an exception the temporary file is removed
    and `path` stays as it was. Without `sync` a crash of the machine may lose what was written:
    for what can be made again, and is looked at before it is trusted.
    """
    temp = _temp_name(path)
    try:
        with _create(temp, path) as stream:
            yield stream
            if sync:
                _sync(stream, path)
        temp.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temp.unlink()
        raise
    if sync:
        sync_dir(path.parent)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what `atomic_writer` leaves of files called `name` in `folder` when it is killed.

    Only for whoever alone writes those files.
    """
    for path in folder.glob(f".{name}.*.tmp"):
        path.unlink(missing_ok=True)


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, whole."""
    with atomic_writer(path) as stream:
        stream.write(data)


def write_text_atomic(path: Path, text: str) -> None:
    r"""Replace `path` by `text` in UTF-8, whole.

    What UTF-8 cannot say (file names that are none, see `os.fsdecode`) is spelt `\udcff`.
    """
    write_bytes_atomic(path, text.encode(errors="backslashreplace"))


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON, whole."""
    write_text_atomic(path, dump_json(value))


def dump_json(value: Any) -> str:
    r"""JSON with sorted keys and a closing newline, so that equal values are equal bytes.

    A file name that is no UTF-8 is text with lone surrogates (`os.fsdecode`). They are spelt as
    JSON spells them (`\udcff`), which is how Python escapes what UTF-8 cannot say; so any text
    can be written, and reads back as it was.
    """
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def plain_json(value: Any) -> Any:
    """The value as JSON has it: names are text, and NaN and infinity, which it lacks, null."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def create_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data`; False if somebody else already created it.

    The file is written under a temporary name and then hard-linked, which is
    atomic on NFS as well: of any number of callers exactly one gets True. An NFS
    client that missed the answer asks again, and hears that the name exists: then
    the second link of our own file tells that it is ours (open(2) on O_EXCL).
    """
    temp = _temp_name(path)
    try:
        with _create(temp, path) as stream:
            stream.write(data)
            _sync(stream, path)
        try:
            os.link(temp, path)
        except FileExistsError:
            if temp.stat().st_nlink != 2:
                return False
    finally:
        with suppress(FileNotFoundError):
            temp.unlink()
    sync_dir(path.parent)
    return True


def read_json(path: Path) -> Any:
    """The JSON value of a file that `write_json_atomic` or `create_once` wrote.

    Raises:
        DamagedFileError: the file holds something else.
        OSError: it cannot be read.
    """
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # the latter: nested as nothing of ours is
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DamagedFileError:
    """What to raise where a file of ours does not hold what was written."""
    message = (
        f"{path} is damaged, as no crash of slurm-jobs leaves a file ({error}): look at its "
        "file system, and restore the file from a backup or snapshot of it"
    )
    return DamagedFileError(message)
