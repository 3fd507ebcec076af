"""What a prefetcher shows of the next step; plain jobs stand in for batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest

from pipeline.data.prefetch import Prefetcher, make_pool


class Steps(Prefetcher):
    """Each step is what its jobs give."""

    def __init__(self, *steps: list[Callable[[], Any]]) -> None:
        self._steps = deque(steps)
        super().__init__(make_pool(2, None), prefetch=2)

    def _submit_step(self) -> list[Future]:
        jobs = self._steps.popleft() if self._steps else [lambda: "later"]
        return [self._pool.submit(job) for job in jobs]

    def end_of_next(self) -> None:
        wait(self._waiting[0])


def test_the_next_step_can_be_peeked_once_it_is_complete_and_still_comes():
    may_end = threading.Event()
    with Steps([lambda: "a", lambda: may_end.wait() and "b"]) as steps:
        assert steps.peek() is None
        may_end.set()
        steps.end_of_next()
        assert steps.peek() == steps.peek() == ["a", "b"]
        assert next(steps) == ["a", "b"]
        steps.end_of_next()
        assert steps.peek() == ["later"]


def test_a_step_that_failed_is_not_shown_and_raises_when_it_comes():
    def fail() -> None:
        message = "a damaged shard"
        raise ValueError(message)

    with Steps([lambda: "a", fail]) as steps:
        steps.end_of_next()
        assert steps.peek() is None
        with pytest.raises(ValueError, match="a damaged shard"):
            next(steps)


def test_after_its_end_nothing_is_shown():
    steps = Steps()
    steps.close()
    assert steps.peek() is None
