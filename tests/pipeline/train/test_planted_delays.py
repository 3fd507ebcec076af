"""A delay shows in the step phase that it is planted in and in no other, and phases add up."""

from __future__ import annotations

import functools
import itertools
import json
import time

import numpy as np
import pytest
import torch

from benchmarks.recording import Marks
from pipeline.data.prefetch import Prefetcher
from pipeline.timing.recorder import StepRecorder
from pipeline.train import loop, trainer
from pipeline.train.checkpoints.measured_saver import MeasuredSaver
from pipeline.train.held_out import HeldOut
from pipeline.train.optimizer.loss_scaling import LossScaling
from pipeline.train.training_data.batches import StepCounter
from slurm_jobs.formats.timings.step_records import STEP_PHASES
from tests.plants.sitecustomize import delayed

DELAY_S, NOISE_S = 0.1, 0.04
SKIPPED = 2
"""Steps at the start, in which torch prepares what it needs."""
PLACES = {
    "data_wait_s": (Prefetcher, "__next__"),
    "host_to_device_s": (loop, "arrange"),
    "forward_s": (loop, "losses_of"),
    "backward_s": (LossScaling, "backward"),
    "optimizer_s": (loop, "_clip"),
    "checkpoint_s": (MeasuredSaver, "save"),
    "evaluation_s": (HeldOut, "evaluate"),
    "other_s": (StepCounter, "__call__"),
}
BETWEEN_STEPS_S = 0.02
"""Processor time of the loop between its steps, all together."""


class Clocks:
    """Time now, by the wall and of this thread, and what it was before."""

    def __init__(self, before=None):
        self.wall_s, self.cpu_s, self.before = time.perf_counter(), time.thread_time(), before


WAYS = {
    "nothing besides": (None, None),
    "marks in a device's queue": (Marks, None),  # a stand-in: no GPU here
    "a wait for the device before each lap": (None, lambda: None),
}


@pytest.fixture(scope="module")
def settings(heldout):
    """By phase, what has each step save its state, or look at held-out samples."""
    look = {
        "manifest": heldout,
        "every_steps": 1,
        "num_loss_samples": 1,
        "num_answers": 0,
        "max_new_tokens": 1,
    }
    save = {"every_min": None, "every_steps": 1, "mode": "sync"}
    return {"checkpoint_s": {"checkpoint": save}, "evaluation_s": {"evaluate": look}}


@pytest.fixture
def check_sums(monkeypatch):
    """Checks that phases add up to steps, and steps to the wall clock by a clock of the test's."""
    began: list[Clocks] = []
    ended: list[Clocks] = []

    def start_step(recorder, step, really=StepRecorder.start_step):
        before = Clocks()
        really(recorder, step)
        began.append(Clocks(before))

    def end_step(recorder, *rest, really=StepRecorder.end_step):
        before = Clocks()
        really(recorder, *rest)
        ended.append(Clocks(before))

    def check(run):
        steps = run.steps()
        phases_s = sum(steps[name].astype(np.float64) for name in STEP_PHASES)
        assert phases_s == pytest.approx(steps["step_s"], rel=1e-4)
        # The recorder reads its clock between two readings of the test's, so that a step is within
        # these bounds even if another process has the core at that moment. A step includes the
        # closing of the one before.
        closing_s = 0.0
        for step_s, start, end in zip(steps["step_s"], began, ended, strict=True):
            assert end.before.wall_s - start.wall_s <= step_s * (1 + 1e-4)
            assert end.wall_s - start.before.wall_s + closing_s >= step_s * (1 - 1e-4)
            closing_s = end.wall_s - end.before.wall_s
        between_s = sum(
            start.before.cpu_s - end.cpu_s for end, start in zip(ended, began[1:], strict=False)
        )
        assert between_s <= 0.01 * (ended[-1].wall_s - began[0].wall_s) + BETWEEN_STEPS_S

    monkeypatch.setattr(StepRecorder, "start_step", start_step)
    monkeypatch.setattr(StepRecorder, "end_step", end_step)
    return check


def phases_of(run, rank=0):
    """Seconds of each step phase in the step in which other processes took least from it."""
    steps = run.steps(rank)[SKIPPED:]
    return {name: float(np.min(steps[name])) for name in STEP_PHASES}


def changed(found, before):
    """Phases that took longer by more than noise, and by how much."""
    over = {name: found[name] - before[name] for name in STEP_PHASES}
    return {name: more for name, more in over.items() if more > NOISE_S}


@pytest.fixture(scope="module")
def undelayed(make_train_run):
    """Nothing is saved or looked at but at the end."""
    run = make_train_run()
    run.run_here()
    return phases_of(run)


@pytest.fixture
def plant(monkeypatch):
    """Delays a function; gives a list to which the time of each of its calls is added."""

    def plant_in(owner, name):
        function, spent_s = delayed(getattr(owner, name), {"sleep_s": DELAY_S}), []

        @functools.wraps(function)
        def call(*args, **kwargs):
            start_s = time.monotonic()
            try:
                return function(*args, **kwargs)
            finally:
                spent_s.append(time.monotonic() - start_s)

        monkeypatch.setattr(owner, name, call)
        return spent_s

    return plant_in


@pytest.mark.parametrize("phase", PLACES)
def test_a_delay_shows_in_its_own_phase_and_nowhere_else(
    make_train_run, settings, undelayed, plant, *, check_sums, phase
):
    spent_s = plant(*PLACES[phase])
    run = make_train_run(num_steps=8, **settings.get(phase, {}))
    run.run_here()
    more_s = DELAY_S
    if phase in settings:  # without it there is none of this phase
        more_s = float(np.min(spent_s[SKIPPED:8]))
    assert more_s >= DELAY_S
    assert changed(phases_of(run), undelayed) == {phase: pytest.approx(more_s, abs=NOISE_S)}
    check_sums(run)


@pytest.mark.parametrize("way", WAYS)
def test_phases_add_up_to_the_wall_clock_with_every_clock_of_the_recorder(
    make_train_run, monkeypatch, check_sums, way
):
    make_clock, synchronize = WAYS[way]
    chosen = make_clock() if make_clock else None, synchronize
    monkeypatch.setattr(trainer, "choose_clock", lambda *_: chosen)
    run = make_train_run(num_steps=100)
    run.run_here()
    check_sums(run)
    assert np.isfinite(run.steps()["device_step_s"]).any() == (make_clock is not None)


def test_torch_compile_time_belongs_to_the_step_in_which_it_happened(make_train_run, monkeypatch):
    """Planted in the backend that compiles the layers: forward has none of it."""
    from torch._dynamo.backends import registry

    late = delayed(registry.lookup_backend("eager"), {"sleep_s": 5 * DELAY_S})
    monkeypatch.setitem(registry._COMPILER_FNS, "eager", late)
    for _ in range(3):  # on a busy machine a forward pass alone may take as long as the delay
        torch._dynamo.reset()
        run = make_train_run(compile={"backend": "eager"})
        run.run_here()
        assert run.steps()["compile_s"].sum() >= 5 * DELAY_S
        longest_forward_s = run.steps()["forward_s"].max()
        if longest_forward_s < 5 * DELAY_S:
            break
    assert longest_forward_s < 5 * DELAY_S


@pytest.mark.slow
def test_what_one_rank_is_late_by_the_other_waits_for(make_train_run, monkeypatch):
    """The delay is the late rank's own, and in the other a wait for ranks and nothing else."""
    plant = {
        "where": "pipeline.train.training_data.batches:StepCounter.__call__",
        "sleep_s": DELAY_S,
    }
    found = {}
    for name, planted in (("without", []), ("with", [{**plant, "rank": 1}])):
        run = make_train_run(strategy="ddp")
        monkeypatch.setenv("TEST_PLANTS", json.dumps(planted))
        run.run()
        found[name] = [phases_of(run, rank) for rank in (0, 1)]
    waits, late = (changed(*pair) for pair in zip(found["with"], found["without"], strict=True))
    assert waits == {"rank_wait_s": pytest.approx(DELAY_S, abs=NOISE_S)}
    assert late == {"other_s": pytest.approx(DELAY_S, abs=NOISE_S)}


def test_every_step_phase_has_a_delay_planted_in_it():
    elsewhere = {"compile_s", "rank_wait_s"}
    assert set(itertools.chain(PLACES, elsewhere)) == set(STEP_PHASES)
