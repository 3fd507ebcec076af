"""Iterator over steps whose batches are assembled by threads ahead of time, in order."""

from __future__ import annotations

import functools
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from pipeline.data.batch import Batch

if TYPE_CHECKING:
    from typing_extensions import Self


class Prefetcher:
    """Iterator over steps, each a list of microbatches; `_submit_step` starts the next one.

    Errors of a thread are raised by the step they belong to. Close it, or use it in a `with`.
    """

    def __init__(self, pool: ThreadPoolExecutor, prefetch: int) -> None:
        """Start to read `prefetch` steps ahead."""
        self._pool = pool
        self._closed = False
        self._waiting: deque[list[Future[Batch]]] = deque()
        for _ in range(max(1, prefetch)):
            self._waiting.append(self._submit_step())

    def _submit_step(self) -> list[Future[Batch]]:
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Batch]:
        if self._closed:
            raise StopIteration
        batches = [future.result() for future in self._waiting.popleft()]
        self._waiting.append(self._submit_step())
        return batches

    def peek(self) -> list[Batch] | None:
        """Return the next step if its threads have finished; does not wait.

        None if one of them failed: the step raises that error.
        """
        futures = self._waiting[0] if self._waiting else []
        if not futures or any(not future.done() or future.exception() for future in futures):
            return None
        return [future.result() for future in futures]

    def close(self) -> None:
        """Stop the threads; batches read ahead are dropped."""
        self._closed = True
        self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def make_pool(num_threads: int, gpu: torch.device | None) -> ThreadPoolExecutor:
    """Return threads that pin memory for `gpu`; by default they would all open the first GPU."""
    use_gpu = None if gpu is None else functools.partial(torch.cuda.set_device, gpu)
    return ThreadPoolExecutor(num_threads, thread_name_prefix="batch", initializer=use_gpu)
