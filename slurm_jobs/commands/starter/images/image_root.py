"""Folder that the paths of images in a manifest start from, if it is not the manifest's own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.formats.manifests.image_paths import place_of
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_sizes import spread
from slurm_jobs.formats.manifests.splits import split_and_rest, split_of

_MAX_NAMES = 20
"""Images that are looked up in a folder; more than half must be there, because some may be lost."""
_FIRST_NAMES = 5
"""Images of which one must be there, so that most of the wrong folders cost few lookups."""
_MAX_FOLDERS = 300
"""Folders that are tried; one with a million images in subfolders has no more that fit."""


def find_image_root(
    folder: Path, rows: Sequence[ManifestRow], *, manifest_name: str = ""
) -> Path | None:
    """Return the folder in which most images of the rows exist.

    None if they exist below `folder`, from which their paths start by default, and also if they are
    in none of the folders that are tried: its subfolders to a depth of two, the folder above it and
    that folder's subfolders. Pictures of several splits may have the same names: of folders with
    equally many, one of the manifest's split is preferred, then one that names none, then the
    nearest.

    Args:
        folder: absolute folder of the manifest.
        rows: rows of the manifest, of which some are looked up.
        manifest_name: name without suffix; one that names no split is for training.
    """
    names = [image.value for row in rows for image in row.images if _is_relative(image.value)]
    some = [names[place] for place in spread(len(names), _MAX_NAMES)]
    if not some or any(_holds(folder, name) for name in some):
        return None
    preferred = [split_and_rest(manifest_name)[0] or "train", None]
    best: tuple[int, int] | None = None
    nearest: Path | None = None
    for path in itertools.islice(_candidates(folder), _MAX_FOLDERS):
        if not any(_holds(path, name) for name in some[:_FIRST_NAMES]):
            continue
        num_held = sum(_holds(path, name) for name in some)
        split = split_of(path.name)
        place = preferred.index(split) if split in preferred else len(preferred)
        rank = (-num_held, place)
        if 2 * num_held > len(some) and (best is None or rank < best):
            best, nearest = rank, path
    return nearest


def _is_relative(name: str) -> bool:
    return bool(name) and not name.startswith("/") and "://" not in name


def _holds(folder: Path, name: str) -> bool:
    with suppress(OSError, ValueError):
        return Path(place_of(name, str(folder))[0]).is_file()
    return False


def _candidates(folder: Path) -> Iterator[Path]:
    below = _subfolders(folder)
    yield from below
    for child in below:
        yield from _subfolders(child)
    yield folder.parent
    yield from (path for path in _subfolders(folder.parent) if path != folder)


def _subfolders(folder: Path) -> list[Path]:
    """Return some subfolders by name; a folder of a million images is not listed to its end."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if entry.is_dir() and not entry.name.startswith("."):
                found.append(Path(entry.path))
            if number >= 100 * _MAX_FOLDERS:
                break
    return sorted(found)[:_MAX_FOLDERS]
