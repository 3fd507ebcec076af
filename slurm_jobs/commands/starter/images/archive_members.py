"""Pictures in archives, and how a manifest names them."""

from __future__ import annotations

import itertools
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.base.units import number_of
from slurm_jobs.commands.starter.images.suffixes import IMAGE_SUFFIXES

_SUFFIXES = (".tar", ".zip")
_MOST_TRIED = 3
"""Archives of a folder that are opened."""
_MOST_MEMBERS = 1_000
"""Members of an archive whose names are read: the headers are spread over the whole file."""


def member_syntax(archive: Path) -> str | None:
    """Return `photos.tar::cats/1.jpg` for the first picture in a tar or zip; None without one."""
    with suppress(OSError, tarfile.TarError, zipfile.BadZipFile, ValueError, zlib.error, EOFError):
        for name in itertools.islice(_members(archive), _MOST_MEMBERS):
            if Path(name).suffix.lower() in IMAGE_SUFFIXES:
                return f"{archive.name}::{name}"
    return None


def archive_note(folder: Path) -> str | None:
    """Return how to list the members of the archives in a folder; None if it has none."""
    archives = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    member = next(filter(None, map(member_syntax, archives[:_MOST_TRIED])), None)
    if member is None:
        return None
    return (
        f"not read: {number_of('archive', len(archives))} next to the list; a manifest names the "
        f"images in them as `{member}`"
    )


def _members(archive: Path) -> Iterator[str]:
    if archive.suffix.lower() == ".tar":
        with open_regular(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield from (member.name for member in tar if member.isreg())
    elif archive.suffix.lower() == ".zip":
        with open_regular(archive) as stream, zipfile.ZipFile(stream) as zipped:
            yield from zipped.namelist()
