"""Shards: the position of each sample, the task that writes each shard, and the writing."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from pipeline.consolidate.parts import Parts, PieceRows, fetch_rows, open_reader, read_ahead
from pipeline.data.format import END_OF_ARCHIVE, ShardInfo, shard_name
from pipeline.data.index import INDEX_ROW, INDEX_TYPES
from pipeline.data.permutation import Permutation, make_permutation
from pipeline.stopping import StopGuard
from slurm_jobs.shared.configs.stages import ConsolidateConfig
from slurm_jobs.shared.files import Progress, atomic_writer


@dataclass(frozen=True, kw_only=True, slots=True)
class Deal:
    """Assignment of all samples to positions, from their number, the seed and the config."""

    order: Permutation
    """Sample at each position, numbered in the order of keys."""
    bounds: np.ndarray
    """int64 [num_shards + 1]: shard s holds positions bounds[s] to bounds[s + 1]."""

    @property
    def num_shards(self) -> int:
        """At least 1; no shard is empty."""
        return len(self.bounds) - 1

    def shard_size(self, shard: int) -> int:
        """Return the number of samples of a shard."""
        return int(self.bounds[shard + 1] - self.bounds[shard])

    def places(self, shards: range) -> range:
        """Return the positions in a run of shards."""
        return range(int(self.bounds[shards.start]), int(self.bounds[shards.stop]))


def make_deal(config: ConsolidateConfig, *, num_samples: int, num_bytes: int) -> Deal:
    """Deal `num_samples` samples, at least one, of `num_bytes` bytes together."""
    num_shards = choose_num_shards(config, num_samples=num_samples, num_bytes=num_bytes)
    return Deal(
        order=make_permutation(num_samples, [config.seed]),
        bounds=shard_bounds(num_samples, num_shards),
    )


def choose_num_shards(config: ConsolidateConfig, *, num_samples: int, num_bytes: int) -> int:
    """Return the number of shards: at least one, and none empty."""
    if config.num_shards is not None:
        wanted = config.num_shards
    elif config.samples_per_shard is not None:
        wanted = -(-num_samples // config.samples_per_shard)
    else:
        wanted = -(-num_bytes // (config.shard_mb * 1_000_000))
    return max(1, min(wanted, num_samples))


def shard_bounds(num_samples: int, num_shards: int) -> np.ndarray:
    """Return int64 [num_shards + 1], see `Deal.bounds`; sizes differ by at most one."""
    return np.arange(num_shards + 1, dtype=np.int64) * num_samples // num_shards


def shards_of_task(num_shards: int, slice_index: int, num_slices: int) -> range:
    """Return the run of shards of one array task; empty if there are more tasks than shards."""
    return range(
        slice_index * num_shards // num_slices, (slice_index + 1) * num_shards // num_slices
    )


def windows(places: range, size: int) -> Iterator[range]:
    """Yield `places` cut into runs of `size`; the last may be shorter."""
    for start in range(places.start, places.stop, size):
        yield range(start, min(start + size, places.stop))


def index_rows(
    samples: np.ndarray, places: range, bounds: np.ndarray, *, num_bytes_before: int
) -> np.ndarray:
    """Return the index rows of the samples at `places`.

    Args:
        samples: [len(places)], from their parts: a structured array with all fields of the
            index but `shard`; its `offset` is replaced.
        places: One run of positions.
        bounds: `Deal.bounds`.
        num_bytes_before: Bytes before the first position in its shard.
    """
    rows = np.empty(len(places), dtype=INDEX_ROW)
    for name in INDEX_TYPES.keys() & set(samples.dtype.names or ()):
        rows[name] = samples[name]
    numbers = np.arange(places.start, places.stop)
    rows["shard"] = np.searchsorted(bounds, numbers, side="right") - 1
    ends = np.cumsum(samples["num_bytes"]) + num_bytes_before
    starts = ends - samples["num_bytes"]
    first_of_shard = bounds[rows["shard"]] - places.start
    # The shard of the first position may have begun before it: then its earlier bytes count.
    rows["offset"] = starts - np.where(first_of_shard < 0, 0, starts[np.maximum(first_of_shard, 0)])
    return rows


# Writes the shards of one array task, and their index rows.


_WINDOW_SAMPLES = 1 << 18
"""Samples that are looked up at a time: about 40 MB, whatever the number of samples."""


def write_shards(
    parts: Parts,
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
    samples = _samples(parts, deal, places, index, num_threads=num_threads)
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
    parts: Parts, deal: Deal, places: range, index: PieceRows, *, num_threads: int
) -> Iterator[bytes]:
    """Yield the bytes of the samples at `places`, in order, and write their index rows."""
    reader = open_reader(parts)
    num_bytes_before = 0
    for window in windows(places, _WINDOW_SAMPLES):
        numbers = deal.order.slice(window.start, window.stop)
        rows = fetch_rows(parts, numbers, num_threads=num_threads)
        rows_of_window = index_rows(rows, window, deal.bounds, num_bytes_before=num_bytes_before)
        index.append(rows_of_window)
        num_bytes_before = int(rows_of_window["offset"][-1] + rows_of_window["num_bytes"][-1])
        if window.stop in deal.bounds:
            num_bytes_before = 0
        part, _ = parts.locate(numbers)
        yield from read_ahead(reader, part, rows, num_threads=num_threads)


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
