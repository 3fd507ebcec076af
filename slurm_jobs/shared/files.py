"""Files that are written atomically, and files that are created exactly once; all private.

Appends and locks are unreliable on NFS; `rename` and `link` are reliable.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from slurm_jobs.shared.errors import DamagedFileError
from slurm_jobs.shared.regular_files import read_bytes

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


# Checks of JSON values from records, which may be damaged or forged.


END_OF_TIME_S = 1e11
"""Year 5138. A larger time or duration was not written by us, so the record is damaged."""
MOST = 2**53
"""Largest integer that all JSON readers represent exactly."""
CLOCKS_APART_S = 86_400.0
"""Upper limit for differences between the clocks of a cluster; covers a wrong time zone."""


def is_number(value: Any) -> bool:
    """Check for a finite number in the range of all our counts and measures."""
    is_it = isinstance(value, int | float) and not isinstance(value, bool)
    return is_it and -MOST <= value <= MOST


def is_amount(value: Any) -> bool:
    """Check for a number that is not below zero."""
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    """Check for a whole number that is not below zero."""
    return is_amount(value) and isinstance(value, int)


def is_moment(value: Any) -> bool:
    """Check for seconds since 1970, or a duration in seconds."""
    return is_amount(value) and value < END_OF_TIME_S


def is_text(value: Any) -> bool:
    """Check for text without control characters except lines and tabs, because it is printed."""
    return isinstance(value, str) and all(c.isprintable() or c in "\n\t" for c in value)


# Files that a stage lists in its result, so that a resume can check them.


def describe_outputs(folder: Path, files: Iterable[Path]) -> dict[str, int]:
    """Return the size of each of `files` by its path below `folder`, as `outputs` of a result."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)}


def named_outputs(result: Any) -> Mapping[str, int]:
    """Return the files that a stage's result lists, with sizes; empty if it lists none."""
    outputs = result.get("outputs") if isinstance(result, Mapping) else None
    return outputs if outputs and are_outputs(outputs) else {}


def are_outputs(outputs: Any) -> bool:
    """Check for sizes by path, which is what `outputs` in a result must be."""
    return isinstance(outputs, Mapping) and all(
        isinstance(name, str) and is_count(size) for name, size in outputs.items()
    )


def wrong_outputs(folder: Path, outputs: Mapping[str, int]) -> list[str]:
    """Return which of a result's `outputs` are no files in `folder` or have another size."""
    return [name for name, num_bytes in outputs.items() if file_bytes(folder / name) != num_bytes]


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def file_bytes(path: Path) -> int | None:
    """Return the size of a regular file; None if the path leads to none, or can lead to none."""
    try:
        status = path.stat()
    except ValueError:  # a name with NUL
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    return status.st_size if stat.S_ISREG(status.st_mode) else None


# Progress of a task, written so rarely that a shared file system is not loaded.


MIN_INTERVAL_S = 2.0


class Progress:
    """Writer of `progress.json` in a task's folder, at most every `MIN_INTERVAL_S` seconds."""

    def __init__(self, task_dir: Path, unit: str, total: int) -> None:
        self.task_dir = task_dir
        self.unit = unit
        self.total = total
        self._last_write_s = 0.0

    def is_due(self, done: int) -> bool:
        """Return whether `update` would write: rarely, but always for the last one."""
        return done >= self.total or time.monotonic() - self._last_write_s >= MIN_INTERVAL_S

    def update(self, done: int, *, detail: str = "") -> None:
        """Record that `done` of `total` are done."""
        if not self.is_due(done):
            return
        self._last_write_s = time.monotonic()
        self._write(done, detail=detail)

    def _write(self, done: int, *, detail: str = "", activity: str | None = None) -> None:
        write_json_atomic(
            self.task_dir / "progress.json",
            {
                "done": done,
                "total": self.total,
                "unit": self.unit,
                "detail": detail,
                "activity": activity,
                "updated_unix_s": time.time(),
            },
        )


# Sets of array indices in Slurm's notation.


def ranges_text(numbers: Iterable[int]) -> str:
    """Format ascending numbers as Slurm writes them: `0-3,7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_ranges(text: str, *, below: int | None = None) -> tuple[int, ...]:
    """Parse `0-3,7`, with an optional throttle (`%4`) and step (`0-9:3`).

    Raises:
        ValueError: it has another form, or a number that is not under `below`. Such numbers are not
            generated, so that a mistyped range cannot fill the memory.
    """
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        chosen = range(int(first), int(last or first) + 1, int(step or 1))
        if below is not None and chosen and max(chosen[0], chosen[-1]) >= below:
            message = f"{part} goes beyond {below - 1}"
            raise ValueError(message)
        numbers.extend(chosen)
        if below is not None and len(numbers) > below:
            message = f"it has over {below} numbers"
            raise ValueError(message)
    return tuple(numbers)
