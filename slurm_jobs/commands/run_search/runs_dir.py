"""Folders of runs: where commands look, which runs are there, and why one cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from slurm_jobs.base.errors import FileError, PathExpansionError
from slurm_jobs.formats.expand import expand_path
from slurm_jobs.run_folder.paths import age_key, is_run

VARIABLE = "SLURM_JOBS_RUNS_DIR"

_SERVER_ERRORS = frozenset(
    {
        errno.ESTALE,
        errno.EIO,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EREMOTEIO,
        errno.ENODEV,
        errno.ESHUTDOWN,
    }
)
"""Errors of a mount whose server or device does not answer (NFS, Lustre, FUSE)."""


def default_runs_dir() -> Path:
    """Return the folder of runs: `$SLURM_JOBS_RUNS_DIR`, else `./runs`.

    Raises:
        PathExpansionError: the variable names an unknown user or variable.
    """
    given = os.environ.get(VARIABLE)
    if given is None:
        return Path("runs").absolute()
    try:
        return Path(expand_path(given)).absolute()
    except PathExpansionError as error:
        message = f"{VARIABLE} is {given}: {error}"
        raise PathExpansionError(message) from error


def runs_in(runs_dir: Path) -> list[Path]:
    """Return the runs in a folder; none if the folder does not exist.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        folders = list(runs_dir.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder for folder in folders if is_run(folder)]


def runs_by_age(runs_dir: Path) -> list[Path]:
    """Return the runs in a folder, the newest last.

    Raises:
        OSError: the folder cannot be listed.
    """
    return sorted(runs_in(runs_dir), key=age_key)


def is_missing(runs_dir: Path) -> str:
    """Return an addition to messages that name a folder of runs; empty if it is a folder."""
    if runs_dir.is_dir():
        return ""
    return ", which is not a folder" if runs_dir.exists() else ", which does not exist"


def _storage_advice(number: int | None) -> str:
    """Return what to do about an error of the system (`errno`) that hides a folder or file."""
    if number in _SERVER_ERRORS:
        return "Its file server does not answer; run the command again when it is back"
    if number in {errno.EACCES, errno.EPERM}:
        return "You may not read it; ask its owner or the administrators for the rights"
    return (
        "It was removed, or its file system is not mounted on this machine; check the path with "
        "`ls`, and run the command again when it is there"
    )


def unreadable_place(
    what: Path, where: Path, why: str | None, number: int | None = None
) -> FileError:
    """Return the error for something that is in a place which cannot be read.

    Args:
        what: run or folder that the user means.
        where: the place that cannot be read.
        why: the reason, for people.
        number: the system's `errno`, if it gave one.
    """
    return FileError(f"{what} cannot be read: {where}: {why}. {_storage_advice(number)}")


def refuse_missing_place(folder: Path) -> None:
    """Raise FileError if the parent of a folder is missing, or the folder is a broken link.

    The first submit creates the folder of runs itself.
    """
    whole = folder.absolute()
    for place in [*reversed(whole.parents), whole]:
        refuse_broken_link(folder, place)
        if place != whole and not place.exists():
            raise unreadable_place(folder, place, "there is no such folder")


def refuse_broken_link(what: Path, place: Path) -> None:
    """Raise FileError if `place`, which leads to `what`, is a link to nothing."""
    if place.is_symlink() and not place.exists():
        link = f"a link to {place.readlink()}, which does not exist"
        raise unreadable_place(what, place, link)
