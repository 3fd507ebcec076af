"""Memory of batches that comes back by itself."""

from __future__ import annotations

import gc
import threading
from collections import deque

import numpy as np
import pytest
import torch

from pipeline.data.batches import buffer_pool
from pipeline.data.batches.buffer_pool import BufferPool


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_comes_back_when_the_last_tensor_over_it_is_gone() -> None:
    pool = BufferPool(pin_memory=False)
    array = pool.take(3_000_000)
    where = address(array)
    tensor = torch.from_numpy(array.reshape(1000, 3000))
    row = tensor[5]
    del array, tensor
    gc.collect()
    assert pool.num_free == 0
    del row
    assert pool.num_free == 1
    assert address(pool.take(2_900_000)) == where


def test_held_memory_is_never_given_out_again() -> None:
    pool = BufferPool(pin_memory=False)
    held = [pool.take(100_000) for _ in range(8)]
    for number, array in enumerate(held):
        array[:] = number
    assert [int(array[0]) for array in held] == list(range(8))
    assert all((array == array[0]).all() for array in held)


def test_a_small_batch_takes_no_large_buffer() -> None:
    pool = BufferPool(pin_memory=False)
    large = pool.take(100_000_000)
    del large
    small = pool.take(5_000_000)
    assert pool.num_free == 1
    assert len(small) == 5_000_000


def test_growing_batches_leave_no_small_buffers_behind() -> None:
    pool = BufferPool(pin_memory=False)
    held = deque(maxlen=3)
    for num_bytes in range(1_000_000, 30_000_000, 200_000):
        held.append(pool.take(num_bytes))
    held.clear()
    assert pool.num_free <= 4  # one more than are held, while the next is taken


def test_a_buffer_of_zero_bytes_may_be_taken() -> None:
    assert BufferPool(pin_memory=False).take(0).shape == (0,)


def test_no_more_than_an_eighth_is_pinned_in_vain_and_all_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA is a stand-in that notes what is registered with it."""
    pinned: dict[int, int] = {}
    monkeypatch.setattr(buffer_pool._pin_memory_utils, "pin_memory", pinned.__setitem__)
    monkeypatch.setattr(buffer_pool._pin_memory_utils, "unpin_memory", pinned.pop)
    for num_bytes in (1_100_000, 17_000_000, 33_600_000, 68_000_000):
        pool = BufferPool(pin_memory=True)
        array = pool.take(num_bytes)
        assert pinned.keys() == {address(array)}
        assert num_bytes <= sum(pinned.values()) <= max(num_bytes * 9 / 8, num_bytes + (1 << 20))
        del array, pool
        assert not pinned


def test_threads_that_take_and_drop_share_few_buffers() -> None:
    pool = BufferPool(pin_memory=False)
    wrong: list[int] = []

    def work(value: int) -> None:
        for _ in range(300):
            array = pool.take(50_000)
            array[:] = value
            if not (array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 1 <= pool.num_free <= 8
