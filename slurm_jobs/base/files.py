"""Files that are written atomically, and files that are created exactly once; all private.

Appends and locks are unreliable on NFS; `rename` and `link` are reliable.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.regular_files import read_bytes

_REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "your quota is used up: remove files, or ask for more",
    errno.EROFS: "its file system is mounted read-only: ask the administrators",
    errno.EACCES: "give yourself the rights to it",
    errno.EPERM: "give yourself the rights to it",
    errno.ESTALE: "its file server was restarted or the folder replaced: check whether it exists",
    errno.ENOENT: "a folder was removed, or its file system is not mounted: check whether it "
    "exists",
}


def storage_problem(error: OSError) -> str:
    """Return `PATH: No space left on device; free space on its file system` in one line."""
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, "check its file system")
    return f"{where}{error.strerror or error}; {remedy}"


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it does not exist.

    `Path.glob` and `Path.is_dir` treat an unreadable folder as empty.

    Raises:
        OSError: the folder seems to exist, and cannot be listed.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - only names: fast
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
    """Create `path` and its missing parents; new ones are readable by their owner only."""
    missing = []
    folder = path
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_DIR_MODE, exist_ok=True)


@contextmanager
def private_umask() -> Iterator[None]:
    """Make all files that this process and its children create in the block private.

    The umask belongs to the process, so it also applies to its other threads.
    """
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


class _NamedFile(io.FileIO):
    """File open for writing, whose write errors name the final path.

    Errors of system calls such as a full disk have no name. Errors with a name, such as of reading
    another file, keep it.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self._path = path
        super().__init__(fd, "wb")

    def write(self, data: Any, /) -> int:
        with naming(self._path):
            return super().write(data)

    def close(self) -> None:
        """Close the file; network file systems report an exceeded quota here."""
        with naming(self._path):
            super().close()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to errors of the file system that name no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _create(temp: Path, path: Path) -> IO[bytes]:
    """Create a file for the owner only, with any umask; errors name `path`."""
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    block_bytes = max(os.fstat(fd).st_blksize, io.DEFAULT_BUFFER_SIZE)
    return io.BufferedWriter(_NamedFile(fd, path), block_bytes)


def _sync(stream: IO[bytes], path: Path) -> None:
    stream.flush()
    with naming(path):
        os.fsync(stream.fileno())


def _temp_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")


def sync_dir(folder: Path) -> None:
    """Make a rename in `folder` durable; skip file systems that cannot sync a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def atomic_writer(
    path: Path, *, sync: bool = True, mode: int = PRIVATE_FILE_MODE
) -> Iterator[IO[bytes]]:
    """Open a file for binary writing that is renamed to `path` only if the block succeeds.

    It is private, as all files of a run, unless `mode` says otherwise. On an exception the
    temporary file is removed and `path` stays as it was. Without `sync` a crash of the machine may
    lose the data: use it only for files that can be recreated, and are verified before use.
    """
    temp = _temp_name(path)
    try:
        with _create(temp, path) as stream:
            yield stream
            if mode != PRIVATE_FILE_MODE:
                with naming(path):
                    os.fchmod(stream.fileno(), mode)
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
    """Remove files that a killed `atomic_writer` for `name` left in `folder`.

    Only for the sole writer of those files.
    """
    for path in folder.glob(f".{name}.*.tmp"):
        path.unlink(missing_ok=True)


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` atomically."""
    with atomic_writer(path) as stream:
        stream.write(data)


def write_text_atomic(path: Path, text: str) -> None:
    r"""Replace `path` by `text` in UTF-8, atomically.

    Characters that UTF-8 cannot encode (undecodable file names, see `os.fsdecode`) are written as
    `\udcff`.
    """
    write_bytes_atomic(path, text.encode(errors="backslashreplace"))


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON, atomically."""
    write_text_atomic(path, dump_json(value))


def dump_json(value: Any) -> str:
    r"""Return JSON with sorted keys and a final newline, so that equal values are equal bytes.

    An undecodable file name is text with lone surrogates (`os.fsdecode`). They are written in
    JSON's own form (`\udcff`), which is how Python escapes characters that UTF-8 cannot encode. So
    any text can be written and reads back unchanged.
    """
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def plain_json(value: Any) -> Any:
    """Return the value as JSON has it: names are text, NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def create_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data`; return False if it already exists.

    The file is written under a temporary name and then hard-linked, which is atomic on NFS as well:
    of any number of callers exactly one gets True. An NFS client that missed the answer retries and
    gets "exists". Then the second link of our own file shows that it is ours (open(2) on O_EXCL).
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
    """Read the JSON value of a file that `write_json_atomic` or `create_once` wrote.

    Raises:
        DamagedFileError: the file has other content.
        OSError: it cannot be read, or is no regular file of a record's size.
    """
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:  # nested too deeply
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DamagedFileError:
    """Return an error for a file of ours with unexpected content."""
    message = (
        f"{path} is damaged ({error}). No crash of slurm-jobs leaves such a file: check its file "
        "system, and restore the file from a backup or snapshot of it"
    )
    return DamagedFileError(message)
