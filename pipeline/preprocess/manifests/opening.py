"""Detects the format of a manifest from its content, and opens it."""

from __future__ import annotations

from pathlib import Path

from pipeline.preprocess.manifests.arrow_table import ArrowTable
from pipeline.preprocess.manifests.model import Manifest
from pipeline.preprocess.manifests.parquet_table import ParquetTable
from pipeline.preprocess.manifests.table_manifest import OpenTable, TableManifest
from pipeline.preprocess.manifests.text_manifest import TextFormat, TextManifest
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.csv_file import CsvFile
from slurm_jobs.common.manifests.json_lines import JsonLines
from slurm_jobs.common.manifests.json_list import JsonList
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.table_files import NoTableError, TableFiles, find_table
from slurm_jobs.common.text_formats import HEAD_BYTES, foreign_format, unknown_format

_TABLES: dict[str, OpenTable] = {"parquet": ParquetTable, "arrow": ArrowTable}


def open_manifest(
    path: Path,
    *,
    limit: int | None = None,
    options: RowOptions | None = None,
    index_dir: Path | None = None,
) -> Manifest:
    """Open the manifest at `path` and count its rows.

    Args:
        path: A file, or the folder of a table.
        limit: Number of rows to use.
        options: Options of the config for rows.
        index_dir: Folder for the index of the manifest, shared with other slices.

    Raises:
        StageConfigError: the file is missing, of unknown format, or malformed. A blank file has
            no rows.
    """
    options = options or RowOptions()
    table = _find_table(path)
    if table is not None:
        opening = _TABLES[table.kind]
        return TableManifest(path, table.files, opening, options, limit=limit, index_dir=index_dir)
    text_format = _text_format(path, options)
    return TextManifest(text_format, limit=limit, index_dir=index_dir)


def _find_table(path: Path) -> TableFiles | None:
    if not path.exists():
        message = (
            f"{path}: no such manifest; give the path of a CSV, JSONL, JSON or Parquet file, or "
            f"of a folder of Parquet files or one that `datasets` saved"
        )
        raise StageConfigError(message)
    try:
        return find_table(path)
    except NoTableError as error:
        message = f"{path}{error}"
        raise StageConfigError(message) from error


def _text_format(path: Path, options: RowOptions) -> TextFormat:
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    foreign = foreign_format(path.name, head)
    if foreign:
        message = f"{path}: {foreign}"
        raise StageConfigError(message)
    first = _first_byte(path)
    if not first:
        return JsonLines(path, options)  # blank: no rows, whatever its name
    if path.suffix.lower() == ".csv":
        return CsvFile(path, options)
    if first == b"[":
        return JsonList(path, options)
    if first == b"{":
        return JsonLines(path, options)
    message = f"{path}: {unknown_format(path.name, head)}"
    raise StageConfigError(message)


def _first_byte(path: Path) -> bytes:
    """Return the first non-blank byte; empty for a blank file."""
    with path.open("rb") as stream:
        block = stream.read(4096).removeprefix(b"\xef\xbb\xbf")
        while block and not block.strip():
            block = stream.read(4096)
    return block.lstrip()[:1]
