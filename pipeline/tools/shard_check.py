"""One shard, read once: its checksum, and each of its samples against the index.

A shard whose index rows are consecutive, as they must be, is read sample by sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import numpy as np
import xxhash

from pipeline.data.disk_format.dataset_info import DatasetInfo, ShardInfo
from pipeline.data.disk_format.index import DatasetIndex, format_key
from pipeline.data.disk_format.sample_members import IMAGE_PREFIX, TOKENS_SUFFIX, view_npy
from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE, scan_members
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.dataset_folder import SHARDS_DIR

BLOCK_BYTES = 8 << 20
MOST_OF_A_SHARD = 100
"""Limit of listed samples."""
Report = Callable[[int, int, str], None]
"""Takes done, total and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardProblem:
    """One problem of a data set."""

    file: str
    """Path below the data set's folder."""
    message: str
    shard: int | None = None
    """Number of the shard, if the problem is one shard's."""
    key: str | None = None
    """Key of the sample, if the problem is one sample's."""
    is_foreign: bool = False
    """Not a file of a data set: `consolidate` leaves it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardReader:
    """State shared by the threads."""

    folder: Path
    info: DatasetInfo
    index: DatasetIndex | None
    """None if it is unusable."""
    report: Report
    first_sample: np.ndarray
    """int64 [num_shards + 1]: the samples of a shard, by the counts in `dataset.json`."""
    _num_done: list[int] = field(default_factory=lambda: [0])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, num_bytes: int) -> None:
        """Report that `num_bytes` more bytes were read."""
        with self._lock:
            self._num_done[0] += num_bytes
            done = self._num_done[0]
        self.report(min(done, self.info.num_bytes), self.info.num_bytes, "bytes")


def shard_problems(reader: ShardReader, shard: int) -> list[ShardProblem]:
    """Return all problems of a shard.

    Raises:
        OSError: it could not be read.
    """
    expected = reader.info.shards[shard]
    name = f"{SHARDS_DIR}/{expected.name}"

    def problem(message: str, key: int | None = None) -> ShardProblem:
        shown = None if key is None else format_key(key)
        return ShardProblem(file=name, message=message, shard=shard, key=shown)

    path = reader.folder / name
    if not path.is_file():
        return [problem("missing")]
    problems = []
    size = path.stat().st_size
    if size != expected.num_bytes:
        problems.append(problem(f"{size} bytes, expected {expected.num_bytes}"))
    rows = range(*reader.first_sample[shard : shard + 2].tolist())
    digest = xxhash.xxh3_64()
    with open_regular(path, buffering=0) as stream:
        if reader.index is not None and _follow_each_other(reader.index, rows, shard, expected):
            wrong = _sample_problems(reader, reader.index, rows, stream, digest)
            problems += _first_of(wrong, problem)
        elif reader.index is not None:
            message = "its samples are not consecutive in the index"
            problems.append(problem(message))
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            reader.count(len(block))
    if size == expected.num_bytes and digest.hexdigest() != expected.xxh3:
        problems.insert(0, problem(f"xxh3 {digest.hexdigest()}, expected {expected.xxh3}"))
    return problems


def _first_of(
    wrong: Iterator[tuple[int, str]], problem: Callable[..., ShardProblem]
) -> Iterator[ShardProblem]:
    """Yield the first problems of samples, and how many more there are."""
    num_wrong = 0
    for key, message in wrong:
        num_wrong += 1
        if num_wrong <= MOST_OF_A_SHARD:
            yield problem(message, key)
    if num_wrong > MOST_OF_A_SHARD:
        yield problem(f"{num_wrong - MOST_OF_A_SHARD} more of its samples are wrong or not there")


def _follow_each_other(index: DatasetIndex, rows: range, shard: int, expected: ShardInfo) -> bool:
    """Check whether the index has the samples of a shard consecutively, from start to end."""
    shard_rows = slice(rows.start, rows.stop)
    ends = np.cumsum(index.num_bytes[shard_rows])
    return bool(
        np.all(index.shard[shard_rows] == shard)
        and np.all(index.num_bytes[shard_rows] > 0)
        and np.array_equal(index.offset[shard_rows], ends - index.num_bytes[shard_rows])
        and int(ends[-1]) + len(END_OF_ARCHIVE) == expected.num_bytes
    )


def _sample_problems(
    reader: ShardReader, index: DatasetIndex, rows: range, stream: FileIO, digest: xxhash.xxh3_64
) -> Iterator[tuple[int, str]]:
    """Yield key and problem of each sample that does not match; update `digest` with all."""
    buffer = bytearray(int(index.num_bytes[rows.start : rows.stop].max()))
    for number in rows:
        view = memoryview(buffer)[: int(index.num_bytes[number])]
        num_read = 0
        while num_read < len(view) and (count := stream.readinto(view[num_read:])):
            num_read += count
        digest.update(view[:num_read])
        reader.count(num_read)
        if num_read < len(view):
            message = f"cut short: {num_read} of {len(view)} bytes"
        elif xxhash.xxh3_64_intdigest(view) != int(index.xxh3[number]):
            message = "its bytes do not match their checksum"
        else:
            message = _content_problem(view, index, number)
        if message:
            yield int(index.key[number]), message


def _content_problem(view: memoryview, index: DatasetIndex, number: int) -> str:
    """Return how a sample's members differ from the index; empty if they do not."""
    key, num_images = format_key(int(index.key[number])), 0
    tokens = None
    try:
        for member in scan_members(view):
            name, _, suffix = member.name.partition(".")
            if name != key:
                return f"it has a member {member.name}, but the index says {key}"
            num_images += suffix.startswith(IMAGE_PREFIX)
            if suffix == TOKENS_SUFFIX:
                tokens = view_npy(view[member.start : member.start + member.num_bytes])
    except ValueError as error:
        return str(error)
    if tokens is None:
        return f"it has no member {TOKENS_SUFFIX}"
    counts = {
        "num_tokens": tokens.shape[1],
        "num_supervised_tokens": int(np.count_nonzero(tokens[1] >= 0)),
        "num_images": num_images,
    }
    wrong = [
        f"{name} {num_found}, but the index says {int(getattr(index, name)[number])}"
        for name, num_found in counts.items()
        if num_found != int(getattr(index, name)[number])
    ]
    return "; ".join(wrong)
