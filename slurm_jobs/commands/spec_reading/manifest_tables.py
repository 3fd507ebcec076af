"""Manifests that are tables, read on the login node: columns, and whether there are rows.

All but tars need pyarrow. It is used if installed; the login node's install does not require it.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.formats.manifests.class_labels import all_class_names, class_names, with_class_names
from slurm_jobs.formats.manifests.containers.json_container import (
    NoContainerError,
    find_container,
)
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.split_files import num_missing
from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError, TableFiles
from slurm_jobs.formats.manifests.tars.group_values import group_row
from slurm_jobs.formats.manifests.tars.tar_groups import open_tar
from slurm_jobs.formats.manifests.text import MAX_BYTES, MAX_ROWS
from slurm_jobs.formats.manifests.values import read_row
from slurm_jobs.formats.tar_headers import BrokenArchiveError
from slurm_jobs.spec.checks.data.manifests import named_manifests
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.spec_files import TableFacts

if TYPE_CHECKING:
    import pyarrow as pa


_BATCH_ROWS = 64
_MOST_ENDS = 100
"""First and last tars whose ends are checked: an interrupted copy cuts the last ones short."""


def table_facts(manifest: str) -> TableFacts | None:
    """Return facts about the table at a path; None if there is none, or it cannot be read.

    These are the columns of the first file, whether any has a row, and damage. Rows that are joined
    from the lists of a JSON object count as a table, too. Rows of tars have no common columns.
    """
    try:
        table = find_table(Path(manifest))
        container = find_container(Path(manifest)) if table is None else None
    except (NoTableError, NoContainerError) as error:
        return TableFacts(problem=str(error))
    except (OSError, ValueError):  # does not exist yet, or is not accessible
        return None
    if container is not None:
        return TableFacts(names=container.columns, has_rows=bool(container.rows))
    facts = None if table is None else _facts_of_files(table, Path(manifest))
    if table is None or facts is None or facts.problem:
        return facts
    return replace(
        facts,
        split=table.split,
        others=table.others,
        num_files=len(table.files),
        num_missing=num_missing(table.files),
    )


def _facts_of_files(table: TableFiles, path: Path) -> TableFacts | None:
    """Return the facts that the files show; None if they cannot be read."""
    if table.kind == "tar":
        return _tar_facts(table, path)
    if not has_pyarrow():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    names: tuple[str, ...] = ()
    for file in table.files:
        try:
            if table.kind == "parquet":
                with closing(pq.ParquetFile(file)) as parquet:
                    columns = parquet.schema_arrow.names
                    has_rows = parquet.metadata.num_rows > 0
            else:
                with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                    columns = reader.schema.names
                    has_rows = any(batch.num_rows for batch in reader)
        except (pa.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                return None
            where = "" if len(table.files) == 1 else f": {file.name}"
            return TableFacts(problem=f"{where} is damaged or cut short ({error})")
        names = names or tuple(columns)
        if has_rows:
            return TableFacts(names=names, has_rows=True)
    return TableFacts(names=names)


def _tar_facts(table: TableFiles, path: Path) -> TableFacts | None:
    """Return the facts that the names of the first members, and the ends of tars, show."""
    has_rows = False
    for number, tar in enumerate(table.files):
        checks_end = number < _MOST_ENDS or number >= len(table.files) - _MOST_ENDS
        if has_rows and not checks_end:
            continue
        try:
            with open_tar(tar) as opened:
                if not has_rows:
                    groups = itertools.islice(opened.groups(table.excluded), MAX_ROWS)
                    has_rows = len(list(groups)) > 0
                if checks_end:
                    opened.check_end()
        except OSError:
            return None
        except BrokenArchiveError as error:
            where = "" if tar == path else f": {tar.name}"
            return TableFacts(problem=f"{where}: {error}")
    return TableFacts(has_rows=has_rows)


def class_column(path: Path) -> str | None:
    """Return the only column of classes of a table that has no column of texts or turns.

    None without pyarrow, or if the table cannot be read.
    """
    table = find_table(path)
    if table is None or table.kind == "tar" or not has_pyarrow():
        return None
    import pyarrow as pa

    options = RowOptions()
    with suppress(pa.ArrowException, OSError, EOFError, ValueError):
        for schema, _ in _batches(table, options):
            classes = list(all_class_names(schema))
            has_words = any(options.meaning(name) in {"text", "turns"} for name in schema.names)
            return classes[0] if len(classes) == 1 and not has_words else None
    return None


def first_table_rows(path: Path, options: RowOptions) -> list[ManifestRow]:
    """Return the first rows of a table, read as the job reads them.

    There are none without pyarrow, unless the table is of tars.
    """
    table = find_table(path)
    if table is not None and table.kind == "tar":
        return first_tar_rows(table, options)
    if table is None or not has_pyarrow():
        return []
    import pyarrow as pa

    from slurm_jobs.formats.manifests.tables import unread_names

    rows: list[ManifestRow] = []
    num_bytes = 0
    try:
        for schema, batch in _batches(table, options):
            unread = unread_names(schema.names, batch.schema.names, options)
            classes = class_names(schema, options)
            for value in batch.to_pylist():
                origin = RowOrigin(row=len(rows), line=None, manifest=path)
                named = with_class_names(value, classes)
                rows.append(read_row(origin, named, options, unread=unread))
            num_bytes += batch.nbytes
            if len(rows) >= MAX_ROWS or num_bytes >= MAX_BYTES:
                break
    except (pa.ArrowException, OSError, EOFError, ValueError):  # the job reports what is damaged
        pass
    return rows[:MAX_ROWS]


def first_tar_rows(table: TableFiles, options: RowOptions) -> list[ManifestRow]:
    """Return the first rows of tars; fewer where a tar is damaged, which the job reports."""
    rows: list[ManifestRow] = []
    num_bytes = 0
    with suppress(BrokenArchiveError, OSError):
        for tar in table.files:
            with open_tar(tar) as opened:
                for group in opened.groups(table.excluded):
                    origin = RowOrigin(row=len(rows), line=None, manifest=tar, key=group.key)
                    rows.append(group_row(origin, group, opened.read, options, table.fields))
                    num_bytes += sum(member.size for member in group.members.values())
                    is_enough = num_bytes >= MAX_BYTES and len(rows) >= _BATCH_ROWS
                    if is_enough or len(rows) == MAX_ROWS:
                        return rows
    return rows


def _batches(table: TableFiles, options: RowOptions) -> Iterator[tuple[pa.Schema, pa.RecordBatch]]:
    """Yield the schema of all columns, and rows of the needed columns, a few at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from slurm_jobs.formats.manifests.tables import needed_columns

    for file in table.files:
        if table.kind == "parquet":
            with closing(pq.ParquetFile(file, pre_buffer=False, buffer_size=2**16)) as parquet:
                schema = parquet.schema_arrow
                columns = needed_columns(schema, options)
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                    yield schema, batch
            continue
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
            columns = needed_columns(reader.schema, options)
            for whole in reader:
                for start in range(0, whole.num_rows, _BATCH_ROWS):
                    yield whole.schema, whole.slice(start, _BATCH_ROWS).select(columns)


def has_pyarrow() -> bool:
    """Check whether this Python can read tables."""
    return importlib.util.find_spec("pyarrow") is not None


def table_notes(spec: RunSpec) -> list[str]:
    """Return notes on tables that were not checked, because this Python has no pyarrow."""
    notes: list[str] = []
    for place, manifest in [] if has_pyarrow() else named_manifests(spec):
        with suppress(OSError, ValueError):
            table = find_table(Path(manifest))
            if table is not None and table.kind != "tar":
                notes.append(
                    f"{place}: {manifest} is a table, and this Python has no pyarrow: its columns "
                    "and rows were not checked (`pip install pyarrow` here, or leave it to the job)"
                )
    return notes
