"""Files of the user's code that a run copies.

Hidden files and folders, private keys, and links that lead out of the sources are left out: a run
is kept for years and shown to colleagues, and the author of the code may have put links to your
files into it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.run_folder.paths import is_run

_NEVER_COPIED = frozenset({"__pycache__", ".git", ".venv"})
"""Names of folders; run folders are not copied either, whatever their name."""
_BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 64 * 1024
"""Part of a file in which a private key is searched: certificates may stand before it."""
_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----"
    rb"|---- BEGIN SSH2 [A-Z0-9 ]{0,40}PRIVATE KEY ----"
    rb"|PuTTY-User-Key-File-[0-9]"
)
"""First line of a private key of SSH, TLS or PGP."""
_BYTES_BEFORE_TEXT = b"\xef\xbb\xbf\xff\xfe \t\r\n"
"""Byte order marks, and white space."""
_SOURCE_CODE = frozenset({".py", ".pyi", ".pyx", ".sh", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp"})
"""Files that are left out only if they begin with a key, because code may compare with its text."""
_MOST_NAMED = 3

Private = Literal["hidden", "key", "elsewhere"]
"""Reason for which a file or folder is left out."""
_TEXTS: Mapping[Private, str] = {
    "hidden": "hidden",
    "key": "a private key",
    "elsewhere": "a link that leads out of the code",
}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    """Path below the folder of its source."""
    path: Path
    private: Private | None = None


def public_files(sources: Sequence[Path]) -> dict[str, Path]:
    """Return the files of the user's code by name in the snapshot, without private ones.

    Links to a place in one of `sources` are followed, broken ones skipped. A source itself is
    copied whatever it is.

    Raises:
        InputError: this user cannot read one of its files or folders.
    """
    with reporting_unreadable_code():
        files = {e.name: e.path for e in _public_and_private(sources) if e.private is None}
        _refuse_unreadable(files.values())
    return files


def all_files(sources: Sequence[Path]) -> dict[str, Path]:
    """Return all files of our own code, or of a snapshot, by name; links are followed.

    Raises:
        InputError: this user cannot read one of its files or folders.
    """
    with reporting_unreadable_code():
        files = {e.name: e.path for source in sources for e in _entries(source, None)}
        _refuse_unreadable(files.values())
    return files


def content_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file's content, read in blocks."""
    content = hashlib.sha256()
    with open_regular(path, buffering=0) as stream:
        while block := stream.read(_BLOCK_BYTES):
            content.update(block)
    return content.digest()


def private_files_note(sources: Sequence[Path]) -> str | None:
    """Return which files and folders of the user's code are not copied; None if all are."""
    with reporting_unreadable_code():
        left_out = [e for e in _public_and_private(sources) if e.private]
    if not left_out:
        return None
    named = [f"{e.name} ({_TEXTS[e.private]})" for e in left_out[:_MOST_NAMED] if e.private]
    if (num_more := len(left_out) - len(named)) > 0:
        named.append(f"and {num_more} more")
    are = "file or folder is" if len(left_out) == 1 else "files or folders are"
    return (
        f"code: {len(left_out)} {are} not copied into the run, because private files do not "
        f"belong there: {', '.join(named)}. Name a path in `code:` if the jobs need it"
    )


def _refuse_unreadable(paths: Iterable[Path]) -> None:
    for path in paths:
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextmanager
def reporting_unreadable_code() -> Iterator[None]:
    """Turn the error of a closed file or folder into one of the user's input."""
    try:
        yield
    except PermissionError as error:
        message = (
            f"{error.filename}: {error.strerror}; a run copies the code that its jobs use, and "
            "cannot copy all of this: have its owner open it (`chmod -R u=rwX,go=rX`), or move it "
            "out of the code"
        )
        raise InputError(message) from error


def _public_and_private(sources: Sequence[Path]) -> Iterator[_Entry]:
    tops = [Path(os.path.realpath(source)) for source in sources]
    for source in sources:
        yield from _entries(source, tops)


def _entries(source: Path, tops: Sequence[Path] | None) -> Iterator[_Entry]:
    """Yield files, and what is left out, which is not opened.

    `tops` are the places that a link may lead to; None: nothing is left out.
    """
    if source.is_file():
        yield _Entry(source.name, source)
        return
    visited: set[str] = set()
    for root, folders, files in os.walk(source, onerror=refuse_closed, followlinks=True):
        real_root = os.path.realpath(root)
        names = sorted(set(folders) - _NEVER_COPIED)
        folders.clear()  # `os.walk` enters those that are added below
        if real_root in visited:  # a link that leads back
            continue
        visited.add(real_root)
        for name in names:
            path = Path(root, name)
            private = None if tops is None else _private_by_name(path, tops)
            if private is not None:
                yield _Entry(str(path.relative_to(source.parent)), path, private)
            elif not _holds_runs(path):
                folders.append(name)
        for name in sorted(files):
            path = Path(root, name)
            private = None if tops is None else _private_by_name(path, tops)
            if private is None:
                if not path.is_file() or path.suffix == ".pyc":
                    continue
                if tops is not None and _holds_private_key(path):
                    private = "key"
            yield _Entry(str(path.relative_to(source.parent)), path, private)


def refuse_closed(error: OSError) -> None:
    """Raise the error of a folder that this user may not list, but not of a deleted one."""
    if isinstance(error, PermissionError):
        raise error


def _private_by_name(path: Path, tops: Sequence[Path]) -> Private | None:
    """Return why a file or folder is private, by its name and by where a link leads."""
    if path.name.startswith("."):
        return "hidden"
    if not path.is_symlink():
        return None
    real = Path(os.path.realpath(path))
    inside = [real.relative_to(top) for top in tops if real.is_relative_to(top)]
    if inside:
        return "hidden" if all(_is_hidden(target) for target in inside) else None
    return "elsewhere" if path.exists() else None


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _holds_private_key(path: Path) -> bool:
    """Check whether a file holds a private key, as far as its beginning shows."""
    try:
        with open_regular(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except PermissionError:  # the check of all files reports it
        return False
    text = head.replace(b"\0", b"")  # as if UTF-16 were ASCII
    if Path(os.path.realpath(path)).suffix in _SOURCE_CODE:
        return _KEY.match(text.lstrip(_BYTES_BEFORE_TEXT)) is not None
    return _KEY.search(text) is not None


def _holds_runs(folder: Path) -> bool:
    """Check whether a folder holds runs or is a run, as far as this user can read it."""
    try:
        if is_run(folder):
            return True
        with os.scandir(folder) as entries:
            inner = [Path(e) for e in entries if e.name not in _NEVER_COPIED and e.is_dir()]
    except PermissionError:  # the listing of its files reports it again
        return False
    return any(is_run(path) for path in inner)
