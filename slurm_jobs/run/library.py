"""Archive of our own two packages, from which the jobs of a run import them.

As 500 files, sources and bytecode, they took 0.1 to 0.2 s of a submission of 0.4 to 0.6 s, and each
task opened 200 of them on the shared file system.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.run.code_files import refuse_closed, reporting_unreadable_code

PACKAGE_DIR = Path(__file__).resolve().parent.parent
_MAGIC = importlib.util.MAGIC_NUMBER
LOADED_BY_RANKS = (
    "pipeline/",
    "slurm_jobs/__init__.py",
    "slurm_jobs/base/",
    "slurm_jobs/formats/",
    "slurm_jobs/run_folder/",
    "slurm_jobs/schedulers/",
    "slurm_jobs/worker/",
)
"""Packages that array tasks and ranks import, so that only they get bytecode. A process of a stage
that reports or tunes compiles what else it imports, which takes 0.1 to 0.5 s once; bytecode for it
would make each submission 5 % slower."""
OF_LOGIN_NODE = "pipeline/tools/"
"""Package among those that only commands on a login node import."""


class Library:
    """Files of our packages, read once.

    Raises:
        InputError: this user cannot read one of them.
    """

    def __init__(self) -> None:
        with reporting_unreadable_code():
            self._sources = [_Source(path, name) for name, path in sorted(_our_files())]

    def fingerprint(self) -> str:
        """Return a hash of names and contents."""
        digest = hashlib.sha256()
        for source in self._sources:
            digest.update(f"{source.archived_name}\0{len(source.text)}\0".encode())
            digest.update(source.text)
        return digest.hexdigest()[:16]

    def write(self, archive: Path, *, as_path: Path) -> None:
        """Write the archive, which will be renamed to `as_path`, readable by the owner only."""
        written = io.BytesIO()  # zipfile seeks and writes several times per file
        with zipfile.ZipFile(written, "w") as library:  # not compressed: it is read more often
            for source in self._sources:
                name = source.archived_name
                library.writestr(zipfile.ZipInfo(name), source.text)
                is_loaded = name.startswith(LOADED_BY_RANKS) and not name.startswith(OF_LOGIN_NODE)
                if not is_loaded or not name.endswith(".py"):
                    continue
                if code := source.existing_bytecode(as_path):
                    # By the hash of its source (PEP 552): an archive has no exact times.
                    header = _MAGIC + struct.pack("<L", 1) + importlib.util.source_hash(source.text)
                    library.writestr(zipfile.ZipInfo(f"{name}c"), header + marshal.dumps(code))
        archive.touch(0o600)
        archive.write_bytes(written.getbuffer())


def _our_files() -> Iterator[tuple[str, str]]:
    """Yield names in the archive and paths."""
    for package in (PACKAGE_DIR, PACKAGE_DIR.parent / "pipeline"):
        yield from _files_below(package, prefix=package.name)
    if not (PACKAGE_DIR / "_shipped").is_dir():  # a checkout: as in an installed package
        yield from _files_below(shipped_path("templates"), prefix="slurm_jobs/_shipped/templates")


def _files_below(folder: Path, *, prefix: str) -> Iterator[tuple[str, str]]:
    # Texts and not paths: a Path for each of 850 files takes as long as reading all of them.
    for root, folders, names in os.walk(folder, onerror=refuse_closed):
        folders[:] = [name for name in folders if name != "__pycache__" and name[0] != "."]
        inside = prefix + root[len(str(folder)) :]
        for name in names:
            path = f"{root}/{name}"
            # An editor's lock is a link that leads nowhere.
            if not name.endswith(".pyc") and os.path.isfile(path):  # noqa: PTH113 - as above
                yield f"{inside}/{name}", path


class _Source(SourceFileLoader):
    """Loader of one source file and its bytecode, under the path that the archive gives it.

    Tracebacks read the lines of that path, and zipimport does not correct it in bytecode.
    """

    def __init__(self, source: str, archived_name: str) -> None:
        super().__init__(archived_name, source)
        self.archived_name = archived_name
        self._source = source
        with open(source, "rb") as stream:  # noqa: PTH123 - as `_files_below`
            self._read_at = os.fstat(stream.fileno())
            self.text = stream.read()

    def existing_bytecode(self, archive: Path) -> CodeType | None:
        """Return bytecode of exactly this text, because every task and rank loads it.

        Another version of Python ignores it and compiles the text.
        """
        self.path = f"{archive}/{self.archived_name}"
        try:
            code = self.get_code(self.name)
            now = os.stat(self._source)  # noqa: PTH116 - as `_files_below`
        except (ImportError, OSError, EOFError, SystemError, TypeError, ValueError):
            return None  # no bytecode, or it is stale or damaged
        is_changed = now.st_mtime_ns != self._read_at.st_mtime_ns
        return None if is_changed else code

    def path_stats(self, _path: Any) -> Mapping[str, Any]:
        """Return time and size of the source, which its bytecode must name."""
        return {"mtime": self._read_at.st_mtime, "size": len(self.text)}

    def get_data(self, path: Any) -> bytes:
        """Read the bytecode, or the source for its hash."""
        if path == self.path:
            return self.text
        # Bytecode of `python -O` has another name in a cache, but not in an archive.
        with open(cache_from_source(self._source, optimization=""), "rb") as stream:  # noqa: PTH123
            data = stream.read()
        is_hashed = data[4:5] in {b"\1", b"\3"}  # the loader may skip this check (PEP 552)
        if is_hashed and data[8:16] != importlib.util.source_hash(self.text):
            raise ImportError
        return data

    # typeshed's two bases differ in this signature.
    def source_to_code(self, *_args: Any, **_options: Any) -> NoReturn:  # type: ignore[override]
        """Refuse to compile, which takes 10 ms a file."""
        raise ImportError
