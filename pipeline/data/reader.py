"""The batches of one rank, assembled by background threads ahead of time, in order.

Threads, not processes: decoding and copying release the interpreter's lock,
and nothing has to be pickled.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
import torch

from pipeline.data.batch import Batch, collate
from pipeline.data.dataset import ShardedDataset
from pipeline.data.order import BatchLayout, epoch_order, position_at, rank_microbatches


class BatchReader:
    """An endless iterator over the steps of one rank: each gives its microbatches as a list.

    What a step holds is a function of `seed`, `global_batch_size` and the step
    alone, so a reader that starts at any `start_step` continues exactly.
    Errors of a background thread (`StageError`, naming shard and key) are
    raised by the step that they belong to. Close it, or use it in a `with`.

    Batches that go to a `gpu` lie in pinned memory, which it copies from while
    the host goes on.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        *,
        seed: int,
        global_batch_size: int,
        num_lanes: int,
        rank: int,
        num_ranks: int,
        num_microbatches: int = 1,
        start_step: int = 0,
        gpu: torch.device | None = None,
        num_threads: int = 2,
        prefetch: int = 4,
    ) -> None:
        """Start to read `prefetch` steps ahead.

        Raises:
            StageConfigError: the sizes do not divide evenly.
        """
        self._dataset, self._rank = dataset, rank
        self._layout = BatchLayout(
            global_batch_size=global_batch_size,
            num_lanes=num_lanes,
            num_ranks=num_ranks,
            num_microbatches=num_microbatches,
        )
        self._pin_memory = gpu is not None
        # Two epochs: a batch may reach over the end of one.
        self._order_of = functools.lru_cache(maxsize=2)(
            functools.partial(epoch_order, len(dataset), seed)
        )
        self._next_step = start_step
        self._waiting: deque[list[Future[Batch]]] = deque()
        self._closed = False
        self._pool = _make_pool(num_threads, gpu)
        for _ in range(max(1, prefetch)):
            self._submit_step()

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        if self._closed:
            raise StopIteration
        batches = [future.result() for future in self._waiting.popleft()]
        self._submit_step()
        return batches

    def close(self) -> None:
        """Stop the threads; batches read ahead are dropped."""
        self._closed = True
        self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _submit_step(self) -> None:
        step, num_samples = self._next_step, len(self._dataset)
        numbers = rank_microbatches(step, self._layout, self._rank, num_samples, self._order_of)
        epoch = position_at(step, self._layout.global_batch_size, num_samples).epoch
        self._waiting.append([self._pool.submit(self._assemble, part, epoch) for part in numbers])
        self._next_step = step + 1

    def _assemble(self, numbers: np.ndarray, epoch: int) -> Batch:
        info = self._dataset.info
        return collate(
            [self._dataset.sample(int(number)) for number in numbers],
            image_shape=(info.image_height, info.image_width, 3),
            pad_token_id=info.pad_token_id,
            epoch=epoch,
            pin_memory=self._pin_memory,
        )


def _make_pool(num_threads: int, gpu: torch.device | None) -> ThreadPoolExecutor:
    """Threads that pin memory for `gpu`; without being told they would all open the first one."""
    use_gpu = None if gpu is None else functools.partial(torch.cuda.set_device, gpu)
    return ThreadPoolExecutor(num_threads, thread_name_prefix="batch", initializer=use_gpu)
