"""Upper bound on speed: the same bytes read from one file, or copied within memory.

`raw` reads each sample into one buffer with `readinto` (in order) or `preadv` (shuffled). `arrays`
copies images scattered in memory into an allocated batch, batch by batch, in as many threads as the
job has.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.peers.job import RAW, SEED, Job, Pass, Source

NAME = "plain"
NEEDS = "numpy"
PACKAGE = "numpy"
NUM_AHEAD = 4
"""Default number of steps that `BatchReader` reads ahead."""


def build(source: Source, folder: Path) -> None:
    """Write a link to the source."""
    (folder / "source").symlink_to(source.folder)


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    source = Source(folder=folder / "source", kind=job.kind)
    return _read(source, job) if job.kind == RAW else _copy(source, job)


def _order(num_samples: int, job: Job) -> list[int]:
    numbers = np.arange(num_samples)
    return (
        np.random.default_rng(SEED).permutation(numbers) if job.is_shuffled else numbers
    ).tolist()


def _read(source: Source, job: Job) -> Pass:
    lengths = source.lengths
    starts = (np.cumsum(lengths) - lengths).tolist()
    buffer = memoryview(bytearray(int(lengths.max())))
    stream = source.path.open("rb", buffering=0)
    sizes, order = lengths.tolist(), _order(len(lengths), job)

    def in_order() -> Iterator[int]:
        stream.seek(0)
        for size in sizes:
            assert stream.readinto(buffer[:size]) == size
            yield 1

    def shuffled() -> Iterator[int]:
        descriptor = stream.fileno()
        for number in order:
            size = sizes[number]
            assert os.preadv(descriptor, [buffer[:size]], starts[number]) == size
            yield 1

    return shuffled if job.is_shuffled else in_order


def _copy(source: Source, job: Job) -> Pass:
    num_samples = len(source.lengths)
    num_bytes = int(np.prod(source.shape))
    pictures = np.fromfile(source.path, np.uint8).reshape(num_samples, num_bytes)
    order = _order(num_samples, job)
    batches = [
        order[start : start + job.batch_size] for start in range(0, num_samples, job.batch_size)
    ]
    num_threads = max(1, job.num_workers)
    # Rotate as many batches as our reader keeps: those read ahead, one in use, and one that each
    # thread fills. Writing to a batch that is still in the cache would be faster.
    num_places = NUM_AHEAD + 1 + num_threads
    places = np.ones((num_places, job.batch_size, num_bytes), np.uint8)

    def copy_every(thread: int) -> None:
        for turn in range(thread, len(batches), num_threads):
            place, batch = places[turn % num_places], batches[turn]
            for row, number in enumerate(batch):
                place[row] = pictures[number]

    def one_pass() -> Iterator[int]:
        threads = [
            threading.Thread(target=copy_every, args=(number,)) for number in range(num_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield num_samples

    return one_pass
