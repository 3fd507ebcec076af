"""Writing of the shards of one array task, and of their index rows."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator
from pathlib import Path

import xxhash

from pipeline.consolidate.dealing import Deal, index_rows, windows
from pipeline.consolidate.mixture import Mixture
from pipeline.consolidate.part_reader import open_reader, read_ahead
from pipeline.consolidate.parts import Parts
from pipeline.consolidate.pieces import PieceRows
from pipeline.consolidate.sample_rows import fetch_rows
from pipeline.data.disk_format.dataset_info import ShardInfo
from pipeline.data.disk_format.index import format_key
from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE, with_key
from pipeline.stopping import StopGuard
from slurm_jobs.base.files import atomic_writer
from slurm_jobs.formats.dataset_folder import shard_name
from slurm_jobs.formats.records.progress_file import Progress

_WINDOW_SAMPLES = 1 << 18
"""Samples that are looked up at a time: about 40 MB, whatever the number of samples."""


def write_shards(
    parts: Parts,
    mixture: Mixture,
    deal: Deal,
    shards: range,
    folder: Path,
    *,
    index: PieceRows,
    progress: Progress,
    guard: StopGuard,
    num_threads: int,
) -> tuple[ShardInfo, ...]:
    """Write a run of shards into `folder`, and the index rows of their samples.

    Raises:
        StageError: a sample does not match its part's row.
        StageStoppedError, StageConfigError: a stop was requested, see `StopGuard`.
    """
    places = deal.places(shards)
    samples = _samples(parts, mixture, deal, places, index, num_threads=num_threads)
    with contextlib.closing(samples):
        return tuple(
            _write_shard(
                itertools.islice(samples, deal.shard_size(shard)),
                folder / shard_name(shard),
                progress,
                guard=guard,
                num_samples=deal.shard_size(shard),
                num_before=int(deal.bounds[shard]) - places.start,
            )
            for shard in shards
        )


def _samples(
    parts: Parts,
    mixture: Mixture,
    deal: Deal,
    places: range,
    index: PieceRows,
    *,
    num_threads: int,
) -> Generator[bytes, None, None]:
    """Yield the bytes of the samples at `places`, in order, and write their index rows."""
    reader = open_reader(parts)
    num_bytes_before = 0
    for window in windows(places, _WINDOW_SAMPLES):
        numbers, copies = mixture.locate(deal.order.slice(window.start, window.stop))
        rows = fetch_rows(parts, numbers, num_threads=num_threads)
        rows_of_window = index_rows(rows, window, deal.bounds, num_bytes_before=num_bytes_before)
        rows_of_window["key"] = mixture.keys(rows["key"], copies)
        num_bytes_before = int(rows_of_window["offset"][-1] + rows_of_window["num_bytes"][-1])
        if window.stop in deal.bounds:
            num_bytes_before = 0
        part, _ = parts.locate(numbers)
        with contextlib.closing(read_ahead(reader, part, rows, num_threads=num_threads)) as read:
            for place, data in enumerate(read):
                written = data
                if copies[place]:  # other names of members, and so another checksum
                    row = rows_of_window[place]
                    written = with_key(data, format_key(int(row["key"])))
                    row["xxh3"] = xxhash.xxh3_64_intdigest(written)
                if place == len(window) - 1:  # the reader does not ask again after the last one
                    index.append(rows_of_window)
                yield written


def _write_shard(
    samples: Iterator[bytes],
    path: Path,
    progress: Progress,
    *,
    guard: StopGuard,
    num_samples: int,
    num_before: int,
) -> ShardInfo:
    digest, num_bytes = xxhash.xxh3_64(), 0
    with atomic_writer(path) as stream:
        for num_done, data in enumerate(samples, start=num_before + 1):
            guard.check(num_done - 1, progress.total)
            stream.write(data)
            digest.update(data)
            num_bytes += len(data)
            progress.update(num_done)
        stream.write(END_OF_ARCHIVE)
        digest.update(END_OF_ARCHIVE)
    return ShardInfo(
        name=path.name,
        num_bytes=num_bytes + len(END_OF_ARCHIVE),
        xxh3=digest.hexdigest(),
        num_samples=num_samples,
    )
