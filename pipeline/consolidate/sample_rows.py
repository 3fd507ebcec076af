"""Locations of single samples, fetched from their parts' files, many at a time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline.consolidate.parts import Parts
from pipeline.preprocess.part import SAMPLE_ROW, PartPaths, damaged_rows
from slurm_jobs.base.errors import StageError

_RUN_ROWS = 1 << 17
"""Rows that are read at a time if most are needed: 7 MiB."""
_ROWS_OF_A_PAGE = 4096 // SAMPLE_ROW.itemsize


def fetch_rows(parts: Parts, numbers: np.ndarray, *, num_threads: int) -> np.ndarray:
    """Return the rows of the samples `numbers`, in that order: `SAMPLE_ROW` [len(numbers)].

    Parts are read in parallel, each once.

    Raises:
        StageError: a part's file is truncated or damaged; the message names part and sample.
    """
    rows = np.empty(len(numbers), dtype=SAMPLE_ROW)
    by_number = np.argsort(numbers)
    cuts = np.searchsorted(numbers[by_number], parts.first_sample)

    def fill(part: int) -> None:
        wanted = by_number[cuts[part] : cuts[part + 1]]
        first, stop = parts.first_sample[part : part + 2]
        rows[wanted] = _rows_of_part(parts.paths[part], numbers[wanted] - first, int(stop - first))

    with ThreadPoolExecutor(num_threads, thread_name_prefix="rows") as pool:
        for _ in pool.map(fill, np.flatnonzero(np.diff(cuts))):
            pass  # raises an error of a thread
    return rows


def _rows_of_part(paths: PartPaths, wanted: np.ndarray, num_samples: int) -> np.ndarray:
    """Return the rows `wanted` (ascending) of a part."""
    try:
        with paths.samples.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = size - num_samples * SAMPLE_ROW.itemsize
            data = b"".join(_read(stream.fileno(), wanted, start))
    except OSError as error:
        message = f"{paths.samples}: {error.strerror}; preprocess slice {paths.slice_index} again"
        raise StageError(message) from error
    rows = np.frombuffer(data[: len(data) // SAMPLE_ROW.itemsize * SAMPLE_ROW.itemsize], SAMPLE_ROW)
    if len(rows) < len(wanted) or len(damaged := damaged_rows(rows)):
        which = len(rows) if len(rows) < len(wanted) else int(damaged[0])
        message = (
            f"{paths.samples}: its row of sample {wanted[which]} is damaged; preprocess slice "
            f"{paths.slice_index} again"
        )
        raise StageError(message)
    return rows


def _read(descriptor: int, wanted: np.ndarray, start: int) -> Iterator[bytes]:
    """Yield the bytes of the wanted rows: runs of the file if that reads at most a page per row."""
    width = SAMPLE_ROW.itemsize
    cuts = [*np.flatnonzero(np.diff(wanted // _RUN_ROWS)) + 1, len(wanted)]
    for begin, end in itertools.pairwise([0, *cuts]):
        some = wanted[begin:end]
        first, count = int(some[0]), int(some[-1] - some[0]) + 1
        if count <= len(some) * _ROWS_OF_A_PAGE:
            run = np.frombuffer(
                os.pread(descriptor, count * width, start + first * width), np.uint8
            )
            whole = run[: len(run) // width * width].reshape(-1, width)
            yield whole[(some - first)[some - first < len(whole)]].tobytes()
        else:
            for row in some.tolist():
                yield os.pread(descriptor, width, start + row * width)
