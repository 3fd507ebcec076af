"""Export of all step records of a run as one table, CSV or Parquet.

A row is one step of one rank in one attempt, rank after rank, with the fields of the record under
their own names; see `slurm_jobs.common.timings`. It is written rank by rank: memory holds the
records of one rank and the current block of the table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import atomic_writer
from slurm_jobs.common.timings import STEP_FIELDS
from slurm_jobs.report.inputs.records import ReportInputs, StageInputs
from slurm_jobs.report.numbers.steps import AttemptSteps, split_attempts

SUFFIXES = (".csv", ".parquet")
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
    write = _writer(path)
    with atomic_writer(path) as stream:
        write(stream, parts)
    return sum(len(part["step"]) for part in parts)


def check_suffix(path: Path) -> None:
    """Refuse a name whose suffix is no format.

    Raises:
        InputError: see `export_steps`.
    """
    _writer(path)


def _parts(stage: StageInputs) -> Iterator[Columns]:
    for index in sorted({t.slice_index for t in stage.timings if t.steps is not None}):
        timings = [t for t in stage.timings if t.slice_index == index]
        fingerprints = {a.attempt: a.fingerprint for a in stage.attempts if a.slice_index == index}
        for attempt in split_attempts(timings, 0, fingerprints):
            for place in range(len(attempt.ranks)):
                yield _columns(stage.name, index, attempt, place)


def _columns(stage: str, index: int, attempt: AttemptSteps, place: int) -> Columns:
    timing = attempt.ranks[place]
    assert timing.steps is not None  # an attempt has the ranks that recorded steps
    records = timing.steps.steps  # as they were written: the waits for profiles included
    is_repeated = np.zeros(len(records), bool)
    is_repeated[attempt.num_kept[place] :] = attempt.is_repeated[place]
    return {
        "stage": stage,
        "slice": index,
        "attempt": attempt.attempt,
        "rank": timing.rank,
        "node": str(timing.steps.metadata.get("node_name", "")),
        "counts": np.arange(len(records)) < attempt.num_kept[place],
        "is_repeated": is_repeated,
        **{name: records[name] for name, _ in STEP_FIELDS},
    }


def _writer(path: Path) -> Callable[[IO[bytes], Sequence[Columns]], None]:
    if path.suffix == ".csv":
        return _write_csv
    if path.suffix != ".parquet":
        message = f"--export {path}: name a file that ends with {' or '.join(SUFFIXES)}"
        raise InputError(message)
    try:
        import pyarrow  # noqa: F401, ICN001 - only whether it is there
    except ImportError as error:
        message = (
            f"--export {path}: Parquet needs pyarrow, which this Python does not have; pip install "
            f"pyarrow, or name a .csv"
        )
        raise InputError(message) from error
    return _write_parquet


def _write_csv(stream: IO[bytes], parts: Sequence[Columns]) -> None:
    """Write CSV; NaN is an empty field, as other programs read it."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for part in parts:
        rows.writerows(zip(*(_cells(part[name], len(part["step"])) for name in COLUMNS)))  # noqa: B905 - all as long as the records
    text.flush()
    text.detach()


def _cells(values: Any, num_rows: int) -> list[Any]:
    """Format values; float32 with the fewest digits that read back equal."""
    if not isinstance(values, np.ndarray):
        return [values] * num_rows
    if values.dtype == np.float32:
        return ["" if value == "nan" else value for value in values.astype(str).tolist()]
    return list(values.tolist())


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
