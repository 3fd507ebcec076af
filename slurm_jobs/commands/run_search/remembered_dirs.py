"""Folders of runs that a user submitted to, remembered so that commands find the runs elsewhere.

There is one small file for each folder of runs and place that runs were submitted from. Its name is
a hash of them and its time is that of the last submit, so that several login nodes that share a
home never overwrite each other's entries.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.errors import DamagedFileError, InputError
from slurm_jobs.base.files import (
    make_private_dir,
    names_in,
    read_json,
    storage_problem,
    write_json_atomic,
)
from slurm_jobs.base.machine import mount_of
from slurm_jobs.commands.run_search.runs_dir import VARIABLE, default_runs_dir
from slurm_jobs.formats.expand import expand_path

MAX_REMEMBERED = 100
"""Entries that are kept. A command without a RUN reads them all: 0.1 s if a home on a network needs
1 ms for a file."""

ANSWER_LIMIT_S = 2.0
"""Time limit for remembered folders, which the user did not name: if the server of an old one is
down, a call to it never returns."""


_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedDir:
    """Folder of runs, and a place that some of them were submitted from."""

    runs_dir: Path
    spec_dir: Path
    """Folder of the spec."""
    working_dir: Path
    """Folder in which `submit` was typed."""
    file_system: str
    """File system of the folder of runs, as the machine that submitted named it."""
    record: Path
    """File of this entry."""

    def is_of(self, folder: Path) -> bool:
        """Check whether runs were submitted from a folder, or from a spec in it."""
        return self.working_dir == folder or self.spec_dir.is_relative_to(folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchableDirs:
    """Remembered folders of runs by whether they can be listed."""

    there: tuple[Path, ...] = ()
    """Folders that exist, the one with the last submit first."""
    away: Mapping[Path, str] = field(default_factory=dict)
    """Folders that cannot be read now, with the reason."""


def remember(runs_dir: Path, spec_dir: Path) -> str | None:
    """Remember that a run was submitted to a folder; return the reason if that is impossible."""
    try:
        values = {
            "runs_dir": str(runs_dir),
            "spec_dir": os.path.realpath(spec_dir),
            "working_dir": str(Path.cwd()),
        }
        key = "\0".join(values.values()).encode(errors="surrogateescape")
        folder = _entries_dir()
        record = folder / f"{hashlib.sha256(key).hexdigest()[:24]}.json"
        values["file_system"] = _file_system_at(runs_dir)
        if _holds(record, values):
            os.utime(record)
        else:
            make_private_dir(folder)
            write_json_atomic(record, values)
            for older in _newest_first(folder)[MAX_REMEMBERED:]:
                older.unlink(missing_ok=True)
    except InputError as error:
        return str(error)
    except OSError as error:
        return storage_problem(error)
    return None


def _holds(record: Path, values: Mapping[str, str]) -> bool:
    with suppress(FileNotFoundError, DamagedFileError):
        return bool(read_json(record) == values)
    return False


def remembered_dirs() -> list[RememberedDir]:
    """Return what `remember` recorded, the newest first; nothing if it cannot be read."""
    entries = []
    with suppress(OSError, InputError):
        for record in _newest_first(_entries_dir()):
            with suppress(OSError, DamagedFileError, KeyError, TypeError):
                values: Any = read_json(record)
                entry = RememberedDir(
                    runs_dir=Path(values["runs_dir"]),
                    spec_dir=Path(values["spec_dir"]),
                    working_dir=Path(values["working_dir"]),
                    file_system=str(values["file_system"]),
                    record=record,
                )
                entries.append(entry)
    return entries


def searchable_dirs(
    entries: Sequence[RememberedDir], *, limit_s: float = ANSWER_LIMIT_S
) -> SearchableDirs:
    """Check which folders of runs can be listed, and forget those that were removed.

    A missing folder was removed if its file system is mounted at its path; otherwise it is kept.
    """
    file_systems: dict[Path, str] = {}
    for entry in entries:
        file_systems.setdefault(entry.runs_dir, entry.file_system)
    looks = _looks_at(file_systems, limit_s)
    removed = {look.folder for look in looks if look.result == "removed"}
    for entry in entries:
        if entry.runs_dir in removed:
            with suppress(OSError):  # a home that is read-only keeps it
                entry.record.unlink()
    return _searchable(looks)


def searched_dirs(*, limit_s: float = ANSWER_LIMIT_S) -> SearchableDirs:
    """Return the folders in which commands look for a run by its id, each once.

    That is `$SLURM_JOBS_RUNS_DIR` alone, or else `./runs`, if it exists, and the remembered ones.
    """
    default = default_runs_dir()
    usual = _searchable(_looks_at({default: _file_system_at(default)}, limit_s))
    if VARIABLE in os.environ:
        return usual
    remembered = searchable_dirs(remembered_dirs(), limit_s=limit_s)
    by_place: dict[str, Path] = {}
    for folder in (*usual.there, *remembered.there):
        by_place.setdefault(os.path.realpath(folder), folder)
    away = {**usual.away, **remembered.away}
    return SearchableDirs(there=tuple(by_place.values()), away=away)


def _looks_at(file_systems: Mapping[Path, str], limit_s: float) -> list[_Look]:
    """Look at folders, all at the same time; their last known file systems are given."""
    looks = [_Look(folder, file_system) for folder, file_system in file_systems.items()]
    end_s = time.monotonic() + limit_s
    for look in looks:
        look.start()
    for look in looks:
        look.join(max(0.0, end_s - time.monotonic()))
    return looks


def _searchable(looks: Sequence[_Look]) -> SearchableDirs:
    return SearchableDirs(
        there=tuple(look.folder for look in looks if look.result == "there"),
        away={look.folder: look.problem for look in looks if look.result == "away"},
    )


class _Look(threading.Thread):
    """Look at a folder; the call may never return, so a process ends without waiting for it."""

    def __init__(self, folder: Path, file_system: str) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self._file_system = file_system
        self.result: Literal["there", "away", "removed"] = "away"
        self.problem = "its file system does not answer"

    def run(self) -> None:
        """Set `result` and `problem`."""
        try:
            os.listdir(self.folder)  # noqa: PTH208 - a folder may exist and still not be readable
            self.result = "there"
        except (FileNotFoundError, NotADirectoryError) as error:
            self.problem = f"{error.strerror}; is its file system mounted on this machine?"
            is_mounted = _file_system_at(self.folder) == self._file_system
            if is_mounted and not os.path.lexists(self.folder):
                self.result = "removed"
        except OSError as error:
            self.problem = error.strerror or str(error)


def _file_system_at(folder: Path) -> str:
    """Return type and origin of the file system that is mounted at a path, which may not exist."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""
    return " ".join(mount_of(mounts, Path(os.path.realpath(folder))))


def _entries_dir() -> Path:
    """Return the folder of the entries, which may not exist.

    Raises:
        InputError: the user has no home folder, or it does not exist.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given)
    if not state.is_absolute():  # the specification has it ignored
        home = Path(expand_path("~"))
        if not home.is_dir():  # only administrators create homes
            message = f"your home folder {home} does not exist"
            raise InputError(message)
        state = home / ".local" / "state"
    return state / "slurm-jobs" / "runs-dirs"


def _newest_first(folder: Path) -> list[Path]:
    ages = []
    for name in names_in(folder):
        if name.endswith(".json") and not name.startswith("."):
            with suppress(FileNotFoundError):  # another command forgot it
                record = folder / name
                ages.append((record.stat().st_mtime, record))
    return [record for _, record in sorted(ages, reverse=True)]
