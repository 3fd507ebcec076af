"""Our data set: bytes from `ShardedDataset.views`, batches from `BatchReader`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.peers.job import RAW, SEED, Job, Pass

NAME = "ours"
NEEDS = "torch"
PACKAGE = "slurm-jobs"


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`. `benchmarks.peers.sets` builds this set first, as the source of the others."""
    from pipeline.data.dataset import open_dataset

    dataset = open_dataset(folder)
    return _raw(dataset, job) if job.kind == RAW else _batches(dataset, job)


def _raw(dataset, job: Job) -> Pass:
    numbers = np.arange(len(dataset))
    if job.is_shuffled:
        numbers = np.random.default_rng(SEED).permutation(numbers)
    order = numbers.tolist()

    def one_pass() -> Iterator[int]:
        for start in range(0, len(order), job.batch_size):
            views = dataset.views(order[start : start + job.batch_size])
            for view in views:
                bytes(view)  # a view alone reads nothing: copy it into one buffer, as `plain` does
            yield len(views)

    return one_pass


def _batches(dataset, job: Job) -> Pass:
    from pipeline.data.loader import BatchReader
    from pipeline.data.order import BatchLayout
    from pipeline.data.reading_plan import ReadingPlan, plan_shuffled

    layout = BatchLayout(
        global_batch_size=job.batch_size, num_lanes=1, num_ranks=1, num_microbatches=1
    )
    if job.is_shuffled:
        plan = plan_shuffled(len(dataset), seed=SEED, layout=layout)
    else:
        plan = ReadingPlan(
            layout=layout,
            num_packs=len(dataset),
            order=lambda _epoch, start, stop: np.arange(start, stop),
        )
    num_steps = len(dataset) // job.batch_size
    # One reader for all passes, as in training: its stream of epochs is endless.
    steps = BatchReader(dataset, plan, rank=0, num_threads=max(1, job.num_workers))

    def one_pass() -> Iterator[int]:
        for (batch,) in itertools.islice(steps, num_steps):
            yield batch.num_images

    return one_pass
