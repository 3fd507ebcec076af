"""Files below a folder of images by kind, without what systems and file servers leave there.

Every file is in one of the groups, or below a folder that is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.base.units import number_of
from slurm_jobs.base.written_values import printable
from slurm_jobs.commands.starter.images.archive_members import member_syntax
from slurm_jobs.commands.starter.images.suffixes import REMEDIES, Kind, kind_of
from slurm_jobs.formats.file_signatures import HEAD_BYTES, begins_as_image
from slurm_jobs.formats.manifests.foreign_files import foreign_format

_LEFTOVERS = frozenset(
    {
        *("@eadir", "@tmp", "#recycle", "#snapshot"),  # Synology
        *("@recycle", "@recently-snapshot", "~snapshot"),  # QNAP, NetApp
        *("$recycle.bin", "system volume information", "thumbs.db", "ehthumbs.db", "desktop.ini"),
        *("lost+found", "__macosx"),
    }
)
"""Names of files and folders in lower case; those of Linux, macOS and Jupyter begin with a dot."""
_MOST_HEADS = 20_000
"""Images of which the first bytes are read: half a minute on a slow file server."""
_MOST_NAMED = 3
_MOST_COUNTED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderFiles:
    """Files of a folder, or of all folders below it."""

    by_kind: Mapping[Kind, list[Path]]
    """Files by what their suffix says; of sidecars and lists (JSON, XML, CSV) `list`."""
    leftovers: list[Path] = field(default_factory=list)
    """Files and folders that are hidden, or that a system or file server left."""
    unread: list[Path] = field(default_factory=list)
    """Folders that cannot be opened, broken links, and pipes or devices."""
    twins: list[Path] = field(default_factory=list)
    """Links to folders that are read already, or that contain the whole folder."""


def _no_files() -> FolderFiles:
    return FolderFiles(by_kind={kind: [] for kind in get_args(Kind)})


def list_files(folder: Path) -> FolderFiles:
    """Return the files below a folder, through links to folders too, each folder once."""
    every = _no_files()
    for here in _walk(folder):
        for kind, files in here.by_kind.items():
            every.by_kind[kind].extend(files)
        every.leftovers.extend(here.leftovers)
        every.unread.extend(here.unread)
        every.twins.extend(here.twins)
    return every


def has_images(folder: Path) -> bool:
    """Check whether there are files below a folder that are named as pictures are."""
    return any(here.by_kind["image"] or here.by_kind["unopened"] for here in _walk(folder))


def has_captions(folder: Path) -> bool:
    """Check whether a picture below a folder has a text next to it."""
    for here in _walk(folder):
        stems = {stem for image in here.by_kind["image"] for stem in stems_of(image)}
        if any(caption.with_suffix("") in stems for caption in here.by_kind["caption"]):
            return True
    return False


def stems_of(image: Path) -> tuple[Path, Path]:
    """Return the paths that, with a suffix added, are captions of an image."""
    return image.with_suffix(""), image


def _walk(folder: Path) -> Iterator[FolderFiles]:
    """Yield the files of each folder, without those below it."""
    seen = {str(parent) for parent in Path(os.path.realpath(folder)).parents}
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        here = _no_files()
        real = os.path.realpath(path)
        if real in seen:
            here.twins.append(path)
        else:
            seen.add(real)
            waiting.extend(reversed(_read_folder(path, here)))
        yield here


def _read_folder(path: Path, here: FolderFiles) -> list[Path]:
    """Sort the entries of a folder into `here`, and return the folders in it."""
    folders: list[Path] = []
    try:
        with os.scandir(path) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        here.unread.append(path)
        return folders
    for entry in entries:
        file, is_folder, is_file = path / entry.name, False, False
        with suppress(OSError):  # a loop of links
            is_folder, is_file = entry.is_dir(), entry.is_file()
        if entry.name.startswith(".") or entry.name.lower() in _LEFTOVERS:
            here.leftovers.append(file)
        elif is_folder:
            folders.append(file)
        elif is_file:
            here.by_kind[kind_of(file)].append(file)
        else:
            here.unread.append(file)
    return folders


def without_damaged(images: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the images without files that no decoder reads, and notes on these.

    Of very many images none is opened here, because the job rejects and counts such files, too.
    """
    if len(images) > _MOST_HEADS:
        return list(images), []
    whole: list[Path] = []
    damaged: dict[str, list[Path]] = {}
    for image in images:
        reason = _damage(image)
        if reason is None:
            whole.append(image)
        else:
            damaged.setdefault(reason, []).append(image)
    return whole, [
        f"left out: {number_of('file', len(files))} with the name of an image, but {reason} "
        f"({named(files)})"
        for reason, files in damaged.items()
    ]


def _damage(image: Path) -> str | None:
    """Return why a file is no image by its first bytes; None if it may be one."""
    try:
        with open_regular(image) as stream:
            head = stream.read(HEAD_BYTES)
    except OSError as error:
        return f"not readable: {error.strerror}"
    if begins_as_image(head):
        return None
    if not head:
        return "empty"
    return foreign_format(image.name, head) or "in no format that is opened"


def file_notes(files: FolderFiles, captions: Mapping[Path, str]) -> list[str]:
    """Return what else is in the folder than images and the `captions` next to them."""
    notes = []
    by_suffix: dict[str, list[Path]] = {}
    for file in files.by_kind["unopened"]:
        by_suffix.setdefault(file.suffix.lower(), []).append(file)
    for suffix, group in sorted(by_suffix.items()):
        member = member_syntax(group[0])
        remedy = REMEDIES[suffix]
        remedy += f", or list members in a manifest, as `{member}`" if member else ""
        notes.append(
            f"left out: {number_of(f'{suffix} file', len(group))}, not opened as images "
            f"({named(group)}): {remedy}"
        )
    alone = [file for file in files.by_kind["caption"] if file not in captions]
    if alone:
        number = number_of("text file", len(alone))
        notes.append(f"left out: {number} without image ({named(alone)})")
    empty = [file for file, text in captions.items() if not text.strip()]
    if empty:
        notes.append(f"{number_of('caption', len(empty))} empty ({named(empty)})")
    if unknown := files.by_kind["unknown"]:
        kinds = _counts(file.suffix or "no suffix" for file in unknown)
        notes.append(
            f"left out: {number_of('file', len(unknown))} of other kinds: {kinds} "
            f"({named(unknown)}); images and captions are recognised by their suffixes"
        )
    if lists := files.by_kind["list"]:
        notes.append(
            f"not read: {number_of('file', len(lists))} of lists or labels ({named(lists)}); to "
            "use one, name it as the manifest (docs/guides/data/manifests.md)"
        )
    if files.leftovers:
        count = len(files.leftovers)
        number = "1 file or folder" if count == 1 else f"{count:,} files and folders"
        notes.append(
            f"left out: {number}, hidden or from a system or file server: "
            f"{_counts(path.name for path in files.leftovers)}"
        )
    if files.unread:
        number = number_of("path", len(files.unread))
        notes.append(
            f"not read: {number} that cannot be opened ({named(files.unread)}): no access, a "
            "broken link, a pipe or a device"
        )
    if files.twins:
        number = number_of("link", len(files.twins))
        notes.append(
            f"left out: {number} to folders that are read already, or that contain this one "
            f"({named(files.twins)})"
        )
    return notes


def refuse_unwritable(files: Iterable[Path]) -> None:
    """Refuse names that are not UTF-8, because a manifest is UTF-8.

    Raises:
        InputError: there is such a name.
    """
    broken = next((f for f in files if any("\ud800" <= c <= "\udfff" for c in str(f))), None)
    if broken is not None:
        message = f"{str(broken)!a}: its name is not UTF-8, and no manifest can hold it; rename it"
        raise InputError(message)


def _counts(names: Iterable[str]) -> str:
    """Return `4 @eaDir, 1 Thumbs.db and 2 more`."""
    counter = Counter(names)
    most = counter.most_common(_MOST_COUNTED)
    parts = ", ".join(f"{count:,} {printable(name)}" for name, count in most)
    others = counter.total() - sum(count for _, count in most)
    return parts + (f" and {others:,} more" if others else "")


def named(files: Sequence[Path]) -> str:
    """Return the names of the first files, and how many more there are."""
    more = len(files) - _MOST_NAMED
    names = ", ".join(printable(file.name) for file in files[:_MOST_NAMED])
    return names + (f" and {more:,} more" if more > 0 else "")
