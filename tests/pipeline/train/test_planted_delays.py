"""A delay shows in the step phase that it is planted in and in no other, and phases add up."""

from __future__ import annotations

import functools
import itertools
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.recording import Marks
from pipeline.data.loader import Prefetcher
from pipeline.timing.recorder import StepRecorder
from pipeline.train import loop, trainer
from pipeline.train.batches import StepCounter
from pipeline.train.checkpoint import TimedSaver
from pipeline.train.device import Scaling
from pipeline.train.held_out import HeldOut
from slurm_jobs.shared.timings import STEP_PHASES
from tests.plants.sitecustomize import delayed

DELAY_S, NOISE_S = 0.1, 0.04
SKIPPED = 2
"""Steps at the start, in which torch prepares what it needs."""
BETWEEN_CLOCKS_S = 0.02
"""Time that another process may take between two clocks, all steps together."""
PLACES = {
    "data_wait_s": (Prefetcher, "__next__"),
    "host_to_device_s": (loop, "arrange"),
    "forward_s": (loop, "losses_of"),
    "backward_s": (Scaling, "backward"),
    "optimizer_s": (loop, "_clip"),
    "checkpoint_s": (TimedSaver, "save"),
    "evaluation_s": (HeldOut, "evaluate"),
    "other_s": (StepCounter, "__call__"),
}
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
    told = SimpleNamespace(began_s=None, ended_s=None)

    def start_step(recorder, step, really=StepRecorder.start_step):
        told.began_s = told.began_s or time.monotonic()
        really(recorder, step)

    def end_step(recorder, *rest, really=StepRecorder.end_step):
        told.ended_s = time.monotonic()
        really(recorder, *rest)

    def check(run):
        steps = run.steps()
        total = {
            name: float(steps[name].sum(dtype=np.float64)) for name in (*STEP_PHASES, "step_s")
        }
        steps_s = total.pop("step_s")
        assert sum(total.values()) == pytest.approx(steps_s, rel=1e-4)
        wall_s = told.ended_s - told.began_s
        assert steps_s == pytest.approx(wall_s, rel=0.01, abs=BETWEEN_CLOCKS_S)

    monkeypatch.setattr(StepRecorder, "start_step", start_step)
    monkeypatch.setattr(StepRecorder, "end_step", end_step)
    return check


def phases_of(run, rank=0):
    """Median seconds of each step phase."""
    steps = run.steps(rank)[SKIPPED:]
    return {name: float(np.median(steps[name])) for name in STEP_PHASES}


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
        more_s = float(np.median(spent_s[SKIPPED:8]))
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


def test_time_that_torch_compiles_is_compile_time_of_the_step_it_happened_in(
    make_train_run, monkeypatch, check_sums
):
    """Planted in the backend that compiles the layers: forward has none of it."""
    from torch._dynamo.backends import registry

    late = delayed(registry.lookup_backend("eager"), {"sleep_s": 5 * DELAY_S})
    monkeypatch.setitem(registry._COMPILER_FNS, "eager", late)
    run = make_train_run(compile={"backend": "eager"})
    run.run_here()
    assert run.steps()["compile_s"].sum() >= 5 * DELAY_S
    assert run.steps()["forward_s"].max() < 5 * DELAY_S
    check_sums(run)


@pytest.mark.slow
def test_what_one_rank_is_late_by_the_other_waits_for(make_train_run, monkeypatch):
    """The delay is the late rank's own, and in the other a wait for ranks and nothing else."""
    plant = {"where": "pipeline.train.batches:StepCounter.__call__", "sleep_s": DELAY_S}
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
