"""Inspection of a user's data: a manifest, or a folder of images."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.common.errors import InputError, PathExpansionError
from slurm_jobs.common.path_expansion import expand_typed
from slurm_jobs.common.steering import plain
from slurm_jobs.common.table_files import NoTableError, TableFiles, find_table
from slurm_jobs.starter.image_folder import IMAGE_SUFFIXES, has_images, refuse_unwritable
from slurm_jobs.starter.model import Data

_HUGE_BYTES = 4 * 2**30
"""A longer text is not read to count its rows: a busy file server takes seconds per gigabyte."""
_PIECE_BYTES = 2**20


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


def look_at(manifest: Path, *, as_named: str) -> Data:
    """Count the rows of a manifest, if that is quick.

    Args:
        manifest: A file or a folder that is a table.
        as_named: Its path, as the spec is to name it.

    Raises:
        InputError: it does not exist, cannot be read, or is an image or a folder that is no table.
    """
    refuse_unwritable([manifest])
    if manifest.suffix.lower() in IMAGE_SUFFIXES and manifest.is_file():
        message = f"{manifest} is an image: name its folder, or a manifest"
        raise InputError(message)
    try:
        table = find_table(manifest)
        if table is not None:
            return Data(manifest=as_named, num_rows=_table_rows(table))
        return _text_rows(manifest, as_named)
    except NoTableError as error:
        of_images = ", nor does it hold images" if manifest.is_dir() else ""
        message = f"{manifest}{error}{of_images}"
        raise InputError(message) from error
    except OSError as error:
        message = f"{manifest}: {error.strerror}; name the file of a manifest, or a folder"
        raise InputError(message) from error


def _text_rows(manifest: Path, as_named: str) -> Data:
    if manifest.stat().st_size > _HUGE_BYTES:
        return Data(manifest=as_named)
    with manifest.open("rb") as stream:
        start = stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):  # a JSON list: its lines are not rows
            return Data(manifest=as_named)
        stream.seek(0)
        num_lines, last = 0, b"\n"
        while piece := stream.read(_PIECE_BYTES):
            num_lines, last = num_lines + piece.count(b"\n"), piece[-1:]
    num_lines += last != b"\n"
    if manifest.suffix.lower() == ".csv":
        return Data(manifest=as_named, num_rows=max(0, num_lines - 1), is_exact=False)
    return Data(manifest=as_named, num_rows=num_lines, is_exact=False)


def _table_rows(table: TableFiles) -> int | None:
    """Return the rows of Parquet from its metadata; None for other formats, or without pyarrow."""
    from slurm_jobs.operations.tables import has_pyarrow

    if table.kind != "parquet" or not has_pyarrow():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return sum(int(pq.ParquetFile(file).metadata.num_rows) for file in table.files)
    except (pa.ArrowException, OSError):  # damaged: `check` reports it
        return None


def is_image_folder(folder: Path) -> bool:
    """Check whether a path is a folder that holds images and is no table.

    A `metadata.parquet` next to images lists them, and makes no table of the folder.
    """
    if not folder.is_dir():
        return False
    try:
        is_listed = (folder / "metadata.parquet").is_file() and has_images(folder)
        return is_listed or find_table(folder) is None
    except NoTableError:
        return has_images(folder)
    except OSError:
        return False
