"""Reader of samples from their parts: ahead of time, in parallel, and in order.

The samples of a shard are scattered over all parts, so each is a separate read. On a shared
file system a read is mostly waiting, and threads wait in parallel: `pread` releases the
interpreter's lock.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import xxhash

from pipeline.consolidate.parts import Parts
from pipeline.data.disk_format.index import format_key
from slurm_jobs.base.errors import StageError

_RUN_SAMPLES = 8
_RUN_BYTES = 1 << 20
"""Bytes that one thread reads before it returns; a larger sample is read alone."""


class _OpenFile:
    """Descriptor that is closed when its last reader is done."""

    def __init__(self, path: os.PathLike[str]) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class PartReader:
    """Reads single samples from parts; may be used from several threads."""

    def __init__(self, *, parts: Parts, max_open: int) -> None:
        """Keep at most `max_open` parts open, besides those that are being read."""
        self.max_open = max_open
        self._paths = parts.paths
        self._open = lru_cache(max_open)(lambda part: _OpenFile(parts.paths[part].tar))

    def read(self, part: int, row: np.void) -> bytes:
        """Return the bytes of the sample of `row` (`SAMPLE_ROW`), compared with its checksum.

        Raises:
            StageError: they do not match, or cannot be read; the message names part and sample.
        """
        offset, num_bytes = int(row["offset"]), int(row["num_bytes"])
        try:
            # keep a reference: otherwise it might be closed, and its number reused
            held = self._open(part)
            data = os.pread(held.descriptor, num_bytes, offset)
        except OSError as error:
            message = (
                f"{self._paths[part].tar}: sample {format_key(int(row['key']))} at byte "
                f"{offset} cannot be read: {error.strerror}"
            )
            raise StageError(message) from error
        if xxhash.xxh3_64_intdigest(data) != int(row["xxh3"]):
            message = (
                f"{self._paths[part].tar}: sample {format_key(int(row['key']))} at byte "
                f"{offset} does not match its checksum; preprocess slice {part} again"
            )
            raise StageError(message)
        return data


def open_reader(parts: Parts) -> PartReader:
    """Return a reader that keeps as many parts open as allowed: half of the process's files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return PartReader(parts=parts, max_open=len(parts.paths))
    wanted = soft + 2 * len(parts.paths)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return PartReader(parts=parts, max_open=max(1, soft // 2))


def read_ahead(
    reader: PartReader, parts: np.ndarray, rows: np.ndarray, *, num_threads: int
) -> Generator[bytes, None, None]:
    """Yield the samples of `rows`, in order; close it to end the threads.

    Args:
        reader: Shared by all threads.
        parts: int [num_samples], the part of each.
        rows: `SAMPLE_ROW` [num_samples].
        num_threads: Number of reading threads. At most two runs of samples per thread are in
            memory.
    """
    waiting: deque[Future[list[bytes]]] = deque()

    def read(run: slice) -> list[bytes]:
        return [reader.read(int(p), row) for p, row in zip(parts[run], rows[run], strict=True)]

    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="samples")
    try:
        for run in cut_runs(rows["num_bytes"]):
            waiting.append(pool.submit(read, run))
            if len(waiting) >= 2 * num_threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def cut_runs(num_bytes: np.ndarray) -> Iterator[slice]:
    """Yield runs of neighbouring samples for one thread: few, and at most a mebibyte together."""
    start = total = 0
    for place, size in enumerate(num_bytes.tolist()):
        if place > start and (total + size > _RUN_BYTES or place - start == _RUN_SAMPLES):
            yield slice(start, place)
            start, total = place, 0
        total += size
    if start < len(num_bytes):
        yield slice(start, len(num_bytes))
