"""Inspection of a user's data: a manifest, or a folder of images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import InputError, PathExpansionError
from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.commands.starter.images.archive_members import member_syntax
from slurm_jobs.commands.starter.images.folder_files import (
    has_captions,
    has_images,
    refuse_unwritable,
)
from slurm_jobs.commands.starter.images.suffixes import IMAGE_SUFFIXES
from slurm_jobs.commands.starter.row_counts import count_table_rows, count_text_rows
from slurm_jobs.commands.starter.starter_facts import Data
from slurm_jobs.formats.expand import expand_typed
from slurm_jobs.formats.manifests.brace_lists import has_braces
from slurm_jobs.formats.manifests.containers.data_set_lists import NAME_OF_LIST
from slurm_jobs.formats.manifests.containers.json_container import NoContainerError, find_container
from slurm_jobs.formats.manifests.image_paths import place_of
from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.splits import split_and_rest
from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError
from slurm_jobs.formats.manifests.tars.energon import META_FOLDER


def expanded(path: Path) -> Path:
    """Return the path with `~` and variables replaced, unless it exists as it is.

    Raises:
        InputError: there is no such user or variable.
    """
    try:
        return Path(expand_typed(str(path)))
    except PathExpansionError as error:
        message = f"{plain(str(path))}: {error}"
        raise InputError(message) from error


def existing(path: Path) -> Path:
    """Return the expanded path of data.

    Raises:
        InputError: it does not exist.
    """
    path = expanded(path)
    if has_braces(path):  # whether all files of the list exist is said where it is read
        return path
    try:
        Path(str(path).partition("::")[0]).stat()
    except OSError as error:
        raise _not_read(path, error) from error
    return path


def _not_read(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror}; name the file of a manifest, or a folder")


def inspect_data(manifest: Path, *, as_named: str) -> Data:
    """Find how many rows a manifest has: a file, or a folder that is a table.

    `as_named` is its path in the spec.

    Raises:
        InputError: it does not exist, cannot be read, or is an image, or a folder but not a
            table.
    """
    refuse_unwritable([manifest])
    if manifest.suffix.lower() in IMAGE_SUFFIXES and manifest.is_file():
        message = f"{manifest} is an image: name its folder, or a manifest"
        raise InputError(message)
    member = member_syntax(manifest)
    rows = [] if member is None else _first_rows(manifest)
    if member is not None and all(row.problem for row in rows):
        why = f" ({rows[0].origin}: {rows[0].problem})" if rows else ""
        message = (
            f"{manifest} is an archive of images{why}: unpack it and name the folder, or write a "
            f"manifest that lists its members with their texts, as `{member}` "
            "(docs/guides/data/manifests.md)"
        )
        raise InputError(message)
    try:
        table = find_table(manifest)
        container = find_container(manifest) if table is None else None
        if container is not None:
            return Data(manifest=as_named, num_rows=len(container.rows))
        count = count_text_rows(manifest) if table is None else count_table_rows(table)
    except NoContainerError as error:
        message = f"{manifest}{error}"
        raise InputError(message) from error
    except NoTableError as error:
        is_plain = manifest.is_dir() and not (manifest / META_FOLDER).exists()
        of_images = ". It holds no images either" if is_plain else ""
        message = f"{manifest}{error}{of_images}"
        raise InputError(message) from error
    except OSError as error:
        raise _not_read(manifest, error) from error
    return Data(manifest=as_named, num_rows=count.number, is_exact=count.is_exact)


def _first_rows(manifest: Path) -> Sequence[ManifestRow]:
    from slurm_jobs.commands.spec_reading.disk_files import disk_files

    return disk_files().first_rows(str(manifest.absolute()), RowOptions())


def class_column_of(manifest: Path) -> str | None:
    """Return the column of a table whose classes are the answers, because there are no others."""
    from slurm_jobs.commands.spec_reading.manifest_tables import class_column

    with suppress(NoTableError, OSError):
        return class_column(manifest)
    return None


def held_out_split(manifest: Path) -> Path | None:
    """Return the split to evaluate of a folder with several: validation, else test."""
    if not manifest.is_dir():
        return None
    with suppress(NoTableError, OSError):
        table = find_table(manifest)
        for kind in ("validation", "test"):
            for name in () if table is None else table.others:
                if split_and_rest(name)[0] == kind:
                    return manifest / name
    return None


def holds_tars(path: Path) -> bool:
    """Check whether a path is a tar, or a folder of tars, whose members are the rows."""
    with suppress(NoTableError, OSError):
        table = find_table(path)
        return table is not None and table.kind == "tar"
    return False


def is_image_folder(folder: Path) -> bool:
    """Check whether a path is a folder that holds images and is not a table.

    A `metadata.parquet` next to images lists them, and makes no table of the folder. Neither does a
    table without a picture, such as the URLs that images were downloaded from, if images have texts
    next to them.
    """
    if not folder.is_dir() or any((folder / name).exists() for name in (NAME_OF_LIST, META_FOLDER)):
        return False
    try:
        if (folder / "metadata.parquet").is_file() and has_images(folder):
            return True
        return find_table(folder) is None or captions_win(folder, folder)
    except NoTableError:
        return has_images(folder)
    except OSError:
        return False


def captions_win(folder: Path, listing: Path) -> bool:
    """Check whether texts next to images of a folder are its data rather than a list of it.

    That is so unless a row of the list has a picture that is there.
    """
    from slurm_jobs.commands.spec_reading.disk_files import disk_files

    files, manifest = disk_files(), str(listing.absolute())
    root = files.image_root_of(manifest)
    rows = files.first_rows(manifest, RowOptions())
    if any(_is_there(image, root) for row in rows for image in row.images):
        return False
    return has_captions(folder)  # last, because it may list millions of files


def _is_there(image: Content, root: str) -> bool:
    if image.problem or image.data is not None:
        return not image.problem
    with suppress(OSError, ValueError):
        return Path(place_of(image.value, root)[0]).is_file()
    return False
