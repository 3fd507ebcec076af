"""Looks at what a user calls their data: a manifest, or a folder of images that becomes one."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurm_jobs.common.csv_columns import CSV_COLUMNS
from slurm_jobs.common.errors import InputError, PathExpansionError
from slurm_jobs.common.path_expansion import expand_typed
from slurm_jobs.common.steering import plain
from slurm_jobs.common.table_files import NoTableError, TableFiles, find_table
from slurm_jobs.starter.model import Data

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jp2"}
)
_HUGE_BYTES = 4 * 2**30
"""A longer text is not read to count its rows: seconds a gigabyte on a busy file server."""
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
    """How many rows a manifest has, as far as that is quick.

    Args:
        manifest: A file or a folder that is a table.
        as_named: Its path, as the spec is to name it.

    Raises:
        InputError: it is not there, cannot be read, or is an image or a folder that is no table.
    """
    _refuse_unwritable([manifest])
    if manifest.suffix.lower() in IMAGE_SUFFIXES and manifest.is_file():
        message = f"{manifest} is an image: name the folder that it lies in, or a manifest"
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
        if start.startswith(b"["):  # a list of JSON: its lines say nothing of its rows
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
    """Of Parquet, whose files say it; None of others, or where there is no pyarrow to ask."""
    from slurm_jobs.operations.tables import has_pyarrow

    if table.kind != "parquet" or not has_pyarrow():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return sum(int(pq.ParquetFile(file).metadata.num_rows) for file in table.files)
    except (pa.ArrowException, OSError):  # damaged: `check` says which, and how
        return None


def is_image_folder(folder: Path) -> bool:
    """A folder that is no table, and holds images."""
    if not folder.is_dir():
        return False
    try:
        return find_table(folder) is None
    except NoTableError:
        return next(_images(folder), None) is not None
    except OSError:
        return False


def captions_of(folder: Path) -> tuple[str, int, int]:
    """A CSV manifest of the images in a folder, each with the words that go with it.

    Words are those of a text file of the same name (`cat.txt` beside `cat.jpg`); where no image has
    one, the name of the folder that an image lies in, as folders of classes have them.

    Returns:
        The CSV, how many images it has, and how many have no words and are left out.

    Raises:
        InputError: there are no images with words, or a text cannot be read.
    """
    images = sorted(_images(folder))
    _refuse_unwritable(images)
    texts = {image: image.with_suffix(".txt") for image in images}
    if any(text.is_file() for text in texts.values()):
        words = {image: _words(text) for image, text in texts.items()}
    else:
        words = {i: i.parent.name.replace("_", " ") if i.parent != folder else "" for i in images}
    found = [(image, text) for image, text in words.items() if text]
    if not found:
        message = (
            f"{folder} has {len(images)} images and no words for them: put a text file beside each "
            "(cat.txt beside cat.jpg), sort them into folders named after what they show, or name "
            "a manifest (docs/data.md says what one looks like)"
        )
        raise InputError(message)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows((image.relative_to(folder).as_posix(), text) for image, text in found)
    return buffer.getvalue(), len(found), len(images) - len(found)


def _refuse_unwritable(images: Iterable[Path]) -> None:
    """Raise where a name is no UTF-8, which a manifest is in."""
    broken = next((image for image in images if not _is_utf8(str(image))), None)
    if broken is not None:
        message = f"{str(broken)!a}: its name is no UTF-8, and no manifest can hold it; rename it"
        raise InputError(message)


def _is_utf8(text: str) -> bool:
    """Bytes that are none stand in the text as surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _images(folder: Path) -> Iterator[Path]:
    """Every image below a folder; what begins with a dot is not looked at."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            if not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES:
                yield Path(here) / name


def _words(text: Path) -> str:
    """What a text file says, on one line; empty where it is not there."""
    try:
        return " ".join(text.read_text(encoding="utf-8-sig").split())
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        message = f"{text}: no UTF-8 (byte {error.start}); save it as UTF-8"
        raise InputError(message) from error
    except OSError as error:
        message = f"{text}: {error.strerror}"
        raise InputError(message) from error
