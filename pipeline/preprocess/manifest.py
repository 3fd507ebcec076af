"""Entry to manifests: detects the format of one from its content, and opens it."""

from __future__ import annotations

from pathlib import Path

from pipeline.preprocess.manifests.arrow_table import ArrowTable
from pipeline.preprocess.manifests.container_manifest import ContainerManifest
from pipeline.preprocess.manifests.interface import Manifest
from pipeline.preprocess.manifests.manifest_sequence import ManifestSequence
from pipeline.preprocess.manifests.parquet_table import ParquetTable
from pipeline.preprocess.manifests.table_manifest import OpenTable, TableManifest
from pipeline.preprocess.manifests.tar_manifest import TarManifest
from pipeline.preprocess.manifests.text_manifest import TextManifest
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.configs.stages import (
    DEFAULT_PROMPT,
    KNOWN_COLUMNS,
    Columns,
    ManifestList,
    entries_of,
)
from slurm_jobs.formats.file_signatures import HEAD_BYTES
from slurm_jobs.formats.manifests.containers.json_container import NoContainerError, find_container
from slurm_jobs.formats.manifests.foreign_files import foreign_format, unknown_format
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError
from slurm_jobs.formats.manifests.text import CsvFile, JsonLines, JsonList, TextFormat

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
        path: A file, or the folder of a table or of tars.
        limit: Number of rows to use.
        options: Options of the config for rows.
        index_dir: Folder for the index of the manifest, shared with other slices.

    Raises:
        StageConfigError: the file is missing, of unknown format, or malformed. A blank file has
            no rows.
    """
    options = options or RowOptions()
    try:
        table = find_table(path)
    except FileNotFoundError as error:
        message = (
            f"{path}: no such manifest; give the path of a CSV, JSONL, JSON, Parquet or tar file, "
            f"or of a folder of Parquet or tar files or one that `datasets` saved"
        )
        raise StageConfigError(message) from error
    except NoTableError as error:
        message = f"{path}{error}"
        raise StageDataError(message) from error
    if table is not None and table.kind == "tar":
        return TarManifest(path, table, options, limit=limit, index_dir=index_dir)
    if table is not None:
        opening = _TABLES[table.kind]
        return TableManifest(path, table.files, opening, options, limit=limit, index_dir=index_dir)
    try:
        container = find_container(path)
    except NoContainerError as error:
        message = f"{path}{error}"
        raise StageDataError(message) from error
    if container is not None:
        return ContainerManifest(path, container, options, limit=limit)
    text_format = _text_format(path, options)
    return TextManifest(text_format, limit=limit, index_dir=index_dir)


def open_manifests(
    manifest: ManifestList | str,
    *,
    limit: int | None,
    options: RowOptions,
    index_dir: Path | None = None,
) -> Manifest | ManifestSequence:
    """Open one manifest, or all of a list as one; see `open_manifest`.

    `options` are those of the stage; a manifest of the list may have columns of its own.
    """
    if isinstance(manifest, str):
        return open_manifest(Path(manifest), limit=limit, options=options, index_dir=index_dir)
    opened, names = [], []
    for entry in entries_of(manifest):
        own_options = RowOptions(
            prompt=options.prompt,
            system_prompt=options.system_prompt,
            columns=options.columns if entry.columns == KNOWN_COLUMNS else entry.columns,
        )
        path = Path(entry.path)
        opened.append(open_manifest(path, limit=limit, options=own_options, index_dir=index_dir))
        names.append(entry.label)
    return ManifestSequence(opened, names, limit=limit)


def _text_format(path: Path, options: RowOptions) -> TextFormat:
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    foreign = foreign_format(path.name, head)
    if foreign:
        message = f"{path}: {foreign}"
        raise StageDataError(message)
    with path.open("rb") as stream:
        block = stream.read(4096).removeprefix(b"\xef\xbb\xbf")
        while block and not block.strip():
            block = stream.read(4096)
    first = block.lstrip()[:1]
    if not first:
        return JsonLines(path, options)  # blank: no rows, whatever its name
    if path.suffix.lower() == ".csv":
        return CsvFile(path, options)
    if first == b"[":
        return JsonList(path, options)
    if first == b"{":
        return JsonLines(path, options)
    message = f"{path}: {unknown_format(path.name, head)}"
    raise StageDataError(message)


def folder_of(manifest: Path) -> Path:
    """Return the default base folder of paths in a manifest: its own folder."""
    return manifest if manifest.is_dir() else manifest.parent


def read_manifest(
    path: Path,
    limit: int | None = None,
    *,
    prompt: str = DEFAULT_PROMPT,
    system_prompt: str = "",
    columns: Columns = KNOWN_COLUMNS,
) -> list[ManifestRow]:
    """Return the first `limit` rows of a manifest, or all; raises like `open_manifest`.

    `prompt`, `system_prompt` and `columns` are as in the config of `preprocess`.
    """
    options = RowOptions(prompt=prompt, system_prompt=system_prompt, columns=columns)
    manifest = open_manifest(path, limit=limit, options=options)
    return list(manifest.rows(range(manifest.num_rows)))
