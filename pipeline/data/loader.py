"""Batches of one rank, assembled by background threads ahead of time, in order.

Threads, not processes: decoding and copying release the interpreter's lock, and nothing has to be
pickled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import torch

from pipeline.data.augmentation import Augmentation
from pipeline.data.batch import Batch, ModelNeeds, assemble
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.batches.learned_targets import refuse_batch
from pipeline.data.dataset import ShardedDataset
from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import Gathered, gather_samples
from pipeline.data.order import Microbatch, epoch_at, rank_microbatches
from pipeline.data.prefetch import Prefetcher, make_pool
from pipeline.data.reading_plan import ReadingPlan
from pipeline.timing.thread_clock import ThreadClock


class BatchReader(Prefetcher):
    """Endless iterator over the steps of one rank: each gives its microbatches as a list.

    The content of a step is a function of the plan and the step alone, so a reader can start at
    any `start_step`. Errors of a background thread (`StageError`, naming shard and key;
    `StageConfigError` where a sample does not fit the levels) are raised by the step they
    belong to. Close it, or use it in a `with`.

    Batches for a `gpu` are in pinned memory, so that it copies them asynchronously.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        plan: ReadingPlan,
        *,
        rank: int,
        start_step: int = 0,
        needs: ModelNeeds = ModelNeeds(),
        augment: Augmentation | None = None,
        gpu: torch.device | None = None,
        num_threads: int = 2,
        prefetch: int = 4,
    ) -> None:
        """Start to read `prefetch` steps ahead."""
        self._dataset, self._plan, self._rank = dataset, plan, rank
        self._augment, self._needs = augment, needs
        self._pin_memory = gpu is not None
        self._buffers = BufferPool(pin_memory=self._pin_memory)
        self._next_step = start_step
        super().__init__(make_pool(num_threads, gpu), prefetch)

    def _submit_step(self) -> list[Future[Batch]]:
        plan, step = self._plan, self._next_step
        self._next_step = step + 1
        parts = rank_microbatches(step, plan.layout, self._rank, plan.num_packs, plan.order)
        epoch = epoch_at(step, plan.layout.global_batch_size, plan.num_packs)
        return [self._pool.submit(self._assemble, part, epoch) for part in parts]

    def _assemble(self, part: Microbatch, epoch: int) -> Batch:
        clock = ThreadClock()
        rows = [self._plan.samples_of(pack) for pack in part.packs.tolist()]
        gathered = self._gather(rows, part.epochs.tolist())
        try:
            batch = self._put_together(gathered, [len(row) for row in rows], epoch)
        except ValueError as error:
            refuse_batch(str(self._dataset.files.shared_dir), error)
        return dataclasses.replace(batch, loading=clock.read())

    def _put_together(self, gathered: Gathered, row_sizes: Sequence[int], epoch: int) -> Batch:
        return assemble(
            gathered,
            row_sizes,
            image_token_id=self._dataset.info.image_token_id,
            pad_token_id=self._dataset.info.pad_token_id,
            epoch=epoch,
            buffers=self._buffers,
            length=self._plan.row_length,
            needs=self._needs,
            pin_memory=self._pin_memory,
        )

    def _gather(self, rows: Sequence[Sequence[int]], epochs: Sequence[int]) -> Gathered:
        """Return the samples of all rows; `epochs` has one entry per row."""
        if self._augment is None and not self._needs.pictures:
            return self._dataset.gather([number for row in rows for number in row])
        try:
            return gather_samples(
                self._samples(rows, epochs),
                self._dataset.rule,
                with_pictures=self._needs.pictures,
            )
        except ValueError as error:
            refuse_batch(str(self._dataset.files.shared_dir), error)

    def _samples(self, rows: Sequence[Sequence[int]], epochs: Sequence[int]) -> Iterator[Sample]:
        for row, epoch in zip(rows, epochs, strict=True):
            for number in row:
                sample = self._dataset.sample(number)
                if self._augment is not None:
                    sample = self._augment(sample, number=number, epoch=epoch)
                yield sample
