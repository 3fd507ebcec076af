"""Export of all step records of a run as one table, CSV or Parquet.

A row is one step of one rank in one attempt, rank after rank, with the fields of the record
under their own names; see `slurm_jobs.formats.timings.step_records`. It is written rank by rank:
memory holds the records of one rank and the current block of the table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import atomic_writer
from slurm_jobs.formats.timings.step_records import STEP_FIELDS
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.steps.attempt_steps import split_by_slice

SUFFIXES = (".csv", ".parquet")
PUBLIC_FILE_MODE = 0o644
OWN_COLUMNS = ("stage", "slice", "attempt", "rank", "node", "counts", "is_repeated")
"""Columns before the fields of the records. `counts`: no later attempt repeated the step;
`is_repeated`: a later attempt at the same training did."""
COLUMNS = (*OWN_COLUMNS, *(name for name, _ in STEP_FIELDS))

Columns = Mapping[str, Any]
"""By name in the order of `COLUMNS`: an array, or one value for all rows."""


def export_steps(inputs: ReportInputs, path: Path) -> int:
    """Write the table of all step records atomically.

    Returns:
        The number of rows.

    Raises:
        InputError: the name ends with none of `SUFFIXES`, the run recorded no steps, or Parquet is
            asked for without pyarrow.
        OSError: the file cannot be written.
    """
    parts = [part for stage in inputs.stages for part in _parts(stage)]
    if not parts:
        run_id = inputs.run["run_id"]
        message = (
            f"run {run_id} has no step records to export: no training of it has made a step; "
            f"`slurm-jobs status {run_id}` says how far it is"
        )
        raise InputError(message)
    check_suffix(path)
    with atomic_writer(path) as stream:
        (_write_csv if path.suffix == ".csv" else _write_parquet)(stream, parts)
    return sum(len(part["step"]) for part in parts)


def check_suffix(path: Path) -> None:
    """Refuse a name whose suffix is no format.

    Raises:
        InputError: see `export_steps`.
    """
    if path.suffix not in SUFFIXES:
        message = f"--export {path}: name a file that ends with {' or '.join(SUFFIXES)}"
        raise InputError(message)
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401, ICN001 - only whether it is there
        except ImportError as error:
            message = (
                f"--export {path}: Parquet needs pyarrow, which this Python does not have; pip "
                "install pyarrow, or name a .csv"
            )
            raise InputError(message) from error


def _parts(stage: StageInputs) -> Iterator[Columns]:
    for index, attempts in split_by_slice(stage).items():
        for attempt in attempts:
            for place, timing in enumerate(attempt.ranks):
                assert timing.steps is not None  # an attempt has the ranks that recorded steps
                records = timing.steps.steps  # as they were written: waits for profiles included
                is_repeated = np.zeros(len(records), bool)
                is_repeated[attempt.num_kept[place] :] = attempt.is_repeated[place]
                yield {
                    "stage": stage.name,
                    "slice": index,
                    "attempt": attempt.attempt,
                    "rank": timing.rank,
                    "node": timing.node,
                    "counts": np.arange(len(records)) < attempt.num_kept[place],
                    "is_repeated": is_repeated,
                    **{name: records[name] for name, _ in STEP_FIELDS},
                }


def _write_csv(stream: IO[bytes], parts: Sequence[Columns]) -> None:
    """Write CSV: float32 with the fewest digits that read back equal, NaN as an empty field."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for part in parts:
        columns = []
        for name in COLUMNS:
            values = part[name]
            if isinstance(values, str):
                cells = [_text_cell(values)] * len(part["step"])
            elif not isinstance(values, np.ndarray):
                cells = [values] * len(part["step"])
            elif values.dtype == np.float32:
                cells = ["" if value == "nan" else value for value in values.astype(str).tolist()]
            else:
                cells = values.tolist()
            columns.append(cells)
        rows.writerows(zip(*columns, strict=True))
    text.flush()
    text.detach()


_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""First characters of text that spreadsheets may run (OWASP, "CSV Injection"); the last four are
the full-width forms of the first four."""


def _text_cell(text: str) -> str:
    """Return text that a spreadsheet shows as it is; a node's name comes from a record."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _write_parquet(stream: IO[bytes], parts: Sequence[Columns]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for part in parts:
        num_rows = len(part["step"])
        arrays = {
            name: pa.array(
                np.ascontiguousarray(part[name])
                if isinstance(part[name], np.ndarray)
                else [part[name]] * num_rows
            )
            for name in COLUMNS
        }
        table = pa.table(arrays)
        writer = writer or pq.ParquetWriter(stream, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
