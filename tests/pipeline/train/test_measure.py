"""A trial of `tune` makes the steps that the training would make, and leaves nothing but times."""

import itertools
import threading
import time
from concurrent.futures import wait

import numpy as np
import pytest

from pipeline.data.dataset import ShardedDataset
from pipeline.data.prefetch import Prefetcher, make_pool
from pipeline.train.measure import Dropping, run
from pipeline.train.ranks.process_group import leave_ranks
from pipeline.train.training_data.batches import StepCounter


@pytest.fixture
def measured(make_train_run):
    """Makes a trial in this process; its run, and what it said."""

    def measure(num_kept_steps: int = 0, *, train=None, **asked: int):
        trial = make_train_run(**(train or {}))
        trial.attempt = 1
        config = {**trial.config, "strategy": "single"}
        try:
            context = trial.context(main_port=trial.new_port())
            said = run({"train": config, "num_kept_steps": num_kept_steps, **asked}, context)
        finally:
            leave_ranks()
        return trial, said

    return measure


@pytest.fixture(scope="module")
def tokens(plain):
    """Of each step."""
    return plain.steps()["num_tokens"].tolist()


def test_a_trial_learns_what_the_training_learns_and_keeps_none_of_it(measured, plain):
    trial, said = measured()
    assert trial.losses() == plain.losses()
    assert said["num_steps"] == 6
    names = {path.name for path in trial.output_dir.iterdir()}
    assert names.isdisjoint({"model", "checkpoints", "generations.jsonl"})
    assert np.isfinite(trial.steps()["loader_s"]).all()


def test_a_trial_without_its_data_path_repeats_batches_and_times_no_loader(measured, tokens):
    steps = measured(num_kept_steps=2)[0].steps()
    assert steps["num_tokens"].tolist() == tokens[:2] * 3
    assert steps["data_wait_s"].max() < 0.01
    assert np.isnan([steps["loader_s"], steps["loader_cpu_s"]]).all()


def test_without_its_data_path_the_time_of_a_reading_thread_is_nan(measured):
    train = {"reader": "webdataset"}
    plain, _ = measured(train=train, num_dropped_steps=0)
    kept, _ = measured(num_kept_steps=2, train=train)
    assert np.isfinite(plain.steps()["loader_read_blocked_s"]).any()
    assert np.isnan(kept.steps()["loader_read_blocked_s"]).all()


def test_steps_that_are_dropped_are_left_out_and_as_many_as_ever_are_made(measured, tokens):
    dropped, said = measured(num_dropped_steps=3, drop_before=2)
    steps = dropped.steps()["num_tokens"].tolist()
    assert said["num_steps"] == len(steps) == 6
    assert steps[:3] == [*tokens[:2], tokens[5]]


def test_a_head_start_of_a_slow_loader_is_no_speed_of_a_trial(measured, monkeypatch):
    gather, count = ShardedDataset.gather, StepCounter.__call__
    is_first = iter([True])

    def slow_gather(*given):
        time.sleep(0.4)  # the planted cause: one thread gives five steps in two seconds
        return gather(*given)

    def slow_first_count(*given):
        time.sleep(2.5 if next(is_first, False) else 0.0)  # five steps are read meanwhile
        return count(*given)

    monkeypatch.setattr(ShardedDataset, "gather", slow_gather)
    monkeypatch.setattr(StepCounter, "__call__", slow_first_count)
    train = {"num_loader_threads": 1, "num_prefetch_batches": 5}
    trial, _ = measured(train=train, num_dropped_steps=5, drop_before=1)
    assert trial.steps()["step_s"][2:].sum() > 1.1  # of four, the first may have been in hand


class Ready(Prefetcher):
    """Numbers for batches, each read once it may be: as a loader that is ahead of the steps."""

    def __init__(self, num_ahead: int) -> None:
        self._may_be_read, self._number = threading.Semaphore(0), itertools.count()
        super().__init__(make_pool(1, None), num_ahead)

    def _submit_step(self):
        return [self._pool.submit(self._read, next(self._number))]

    def _read(self, number: int) -> int:
        self._may_be_read.acquire()
        return number

    def allow(self, num_steps: int) -> None:
        """Let so many more be read."""
        self._may_be_read.release(num_steps)

    def read(self, num_steps: int) -> None:
        """Let so many more be read, and wait until they are."""
        futures = [step[0] for step in self._waiting][:num_steps]
        self.allow(num_steps)
        wait(futures)

    def close(self) -> None:
        self.allow(1000)  # a thread that waits for leave would never end
        super().close()


@pytest.mark.parametrize("num_ahead", [2, 8])
def test_a_head_start_feeds_no_step_after_the_warm_up(num_ahead):
    with Ready(num_ahead) as reader:
        batches = Dropping(reader, 8, before=1)
        reader.read(num_ahead)
        assert next(batches) == [0]
        assert reader.peek() is not None
        assert batches.peek() is None  # what comes next is another one
        reader.allow(10 - num_ahead)  # all that a slow loader gives while some are dropped
        assert next(batches) == [9]
        assert batches.peek() is None
        reader.read(1)
        assert next(batches) == [10]
