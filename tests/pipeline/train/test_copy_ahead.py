"""In which order streams wait and copy; a device that notes it stands in for a GPU's."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from pipeline.data.batch import Batch
from pipeline.data.loader import BatchReader, Prefetcher
from pipeline.train import loop
from pipeline.train.batches import Copied
from pipeline.train.loop import CopyAhead

CPU = torch.device("cpu")


class Stream:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self._told = name, told

    def wait_stream(self, other: Stream) -> None:
        self._told.append(f"{self.name} waits for {other.name}")


class Device:
    """The part of `torch.cuda` that is used."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._current = Stream("compute", self.told)

    def Stream(self) -> Stream:  # noqa: N802 - torch's name
        return Stream("copies", self.told)

    def current_stream(self) -> Stream:
        return self._current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before


@pytest.fixture
def device(monkeypatch) -> Device:
    device = Device()

    def copy(batch, _device):
        device.told.append(f"{batch.name} in {device.current_stream().name}")
        return f"copy of {batch.name}"

    monkeypatch.setattr(loop.torch, "get_device_module", lambda _: device)
    monkeypatch.setattr(loop, "copy_batch", copy)
    return device


def batch(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name)


def test_the_model_waits_for_a_copy_that_was_begun_and_it_is_made_once(device):
    copies, first, second = CopyAhead(CPU), batch("A"), batch("B")
    assert copies.take(first) == "copy of A"
    copies.begin(second)
    assert copies.take(second) == "copy of B"
    wait = "compute waits for copies"
    assert device.told == [
        *("copies waits for compute", "A in copies", wait),
        *("copies waits for compute", "B in copies", wait),
    ]


def test_another_batch_than_the_one_that_was_begun_is_copied_anew(device):
    copies = CopyAhead(CPU)
    copies.begin(batch("A"))
    assert copies.take(batch("A")) == "copy of A"  # of the same name, but another
    assert device.told.count("A in copies") == 2


def test_a_batch_that_comes_twice_is_copied_twice(device):
    copies, again = CopyAhead(CPU), batch("A")
    assert copies.take(again) == copies.take(again) == "copy of A"
    assert device.told.count("A in copies") == 2


def peek_when_it_is_ready(steps: Prefetcher) -> list[Batch] | None:
    concurrent.futures.wait(steps._waiting[0])
    return Prefetcher.peek(steps)


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_a_training_begins_to_copy_the_next_microbatch_before_it_learns_this_one(
    make_train_run, monkeypatch, num_microbatches
):
    told: list[str] = []
    losses_of = loop.losses_of

    class Noting(CopyAhead):
        def begin(self, batch: Batch) -> None:
            told.append("begin")
            super().begin(batch)

        def take(self, batch: Batch) -> Copied:
            told.append("take")
            return super().take(batch)

    def learn(model, inputs):
        told.append("learn")
        return losses_of(model, inputs)

    monkeypatch.setattr(loop, "CopyAhead", Noting)
    monkeypatch.setattr(loop, "losses_of", learn)
    monkeypatch.setattr(BatchReader, "peek", peek_when_it_is_ready)
    make_train_run().run_here(num_microbatches=num_microbatches, num_steps=3)
    of_each = ["take", "begin", "learn"]
    assert told == ["take", "begin", "begin", "learn", *(of_each * (3 * num_microbatches - 1))]
