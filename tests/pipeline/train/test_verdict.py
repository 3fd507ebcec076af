"""The verdict of a step: who computes it, when the host reads it, and what it costs."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.train import loop, trainer
from pipeline.train.device import Scaling
from pipeline.train.loop import Boundary
from pipeline.train.verdict import judge
from slurm_jobs.shared.errors import StageError, StageStoppedError
from slurm_jobs.shared.timings import read_steps, steps_path
from tests.pipeline.models.host_reads import DEVICE, HostReads
from tests.pipeline.train.test_scaling import FP16, OtherRank, poison_step


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", ["loss", "norm", "other rank"])
def test_one_number_of_one_rank_that_is_not_finite_makes_the_verdict_of_all_bad(value, place):
    numbers = {"loss": 2.0, "norm": 3.0, **({place: value} if place != "other rank" else {})}
    verdict = judge(
        torch.tensor(numbers["loss"]),
        torch.tensor(numbers["norm"]),
        None,
        OtherRank(is_bad=place == "other rank"),
    )
    assert verdict.is_bad.item() == 1.0
    assert not verdict.read().is_finite


def test_the_loss_is_summed_over_ranks_and_the_local_numbers_stay():
    other = OtherRank(is_bad=False)
    other.numbers[0] = 1.5
    verdict = judge(torch.tensor(2.0), torch.tensor(3.0), torch.tensor(8.0), other).read()
    assert (verdict.is_finite, verdict.loss, verdict.local_loss) == (True, 3.5, 2.0)
    assert (verdict.grad_norm, verdict.scale) == (3.0, 8.0)


class Seen(Exception):  # noqa: N818 - no error
    """The loop has ended; nothing after it is of interest."""


def watch_loop(monkeypatch, seen):
    """Run the loop as if its device were another one, and note what the host reads of it."""
    run_steps, losses_of, backward = loop.run_steps, loop.losses_of, Scaling.backward
    read = loop._read
    seen.events, seen.outside, seen.within, seen.before_forward = [], [], Counter(), Counter()

    def run(setup, start_step, watch):
        bare = setup.made.spread.bare
        on_device = [*bare.parameters(), *bare.buffers()]
        setup.workplace = dataclasses.replace(setup.workplace, device=DEVICE)
        setup.saver = SimpleNamespace(save=lambda *_, **__: None, has_ended_here=lambda: False)

        def mark(steps):
            for step in watch(steps):
                seen.events.append(("begins", step))
                before = Counter(seen.reads.by_place)
                within = Counter(seen.within)
                seen.at_start = Counter(before)
                yield step
                seen.outside.append(seen.reads.by_place - before - (seen.within - within))

        with HostReads(on_device) as seen.reads:
            run_steps(setup, start_step, mark)
        raise Seen

    def passes(function, event):
        def call(*args):
            before = Counter(seen.reads.by_place)
            if event is not None:
                seen.events.append((event,))
                seen.before_forward += before - seen.at_start
            try:
                return function(*args)
            finally:
                seen.within += seen.reads.by_place - before

        return call

    def note_read(setup, queued):
        seen.events.append(("read", queued.step))
        return read(setup, queued)

    monkeypatch.setattr(trainer, "run_steps", run)
    monkeypatch.setattr(loop, "losses_of", passes(losses_of, "forward"))
    monkeypatch.setattr(Scaling, "backward", passes(backward, None))
    monkeypatch.setattr(loop, "_read", note_read)
    return seen


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_host_waits_once_a_step_for_the_step_before_and_never_before_the_forward_pass(
    make_train_run, monkeypatch, precision
):
    seen = watch_loop(monkeypatch, SimpleNamespace())
    with pytest.raises(Seen):
        make_train_run(precision=precision, num_steps=5).run_here()
    assert not seen.before_forward
    # The first step reads nothing, and the last one its own verdict, too.
    assert [places.total() for places in seen.outside] == [0, 1, 1, 1, 2]
    assert {place.split(":")[0] for places in seen.outside for place in places} == {
        "verdict.QueuedVerdict.read"
    }
    once_a_process = "layouts._factors"
    assert {place.split(":")[0] for place in seen.reads.copied} <= {once_a_process}
    expected = [("begins", 0), ("forward",)]
    for step in range(1, 5):
        expected += [("begins", step), ("forward",), ("read", step - 1)]
    assert seen.events == [*expected, ("read", 4)]


@pytest.mark.parametrize("where", ["before a checkpoint", "between two", "at a stop", "last"])
def test_a_skipped_step_is_counted_and_named_wherever_it_is(
    make_train_run, monkeypatch, caplog, where
):
    step = {"before a checkpoint": 2, "between two": 3, "at a stop": 3, "last": 5}[where]
    run = make_train_run(**{**FP16, "scaler": {}, "num_steps": 6})
    agree = Boundary.agree

    def agree_to_stop(boundary, num_steps_done):
        agreed = agree(boundary, num_steps_done)
        is_asked = num_steps_done == step + 1
        return dataclasses.replace(agreed, save=agreed.save or is_asked, stop=is_asked)

    with monkeypatch.context() as patch:
        poison_step(patch, step, loss=False)
        if where == "at a stop":
            patch.setattr(Boundary, "agree", agree_to_stop)
            with pytest.raises(StageStoppedError, match="after step 4 is saved"):
                run.run_here()
        else:
            assert run.run_here()["num_skipped_steps"] == 1
    if where == "at a stop":
        assert run.run_here()["num_skipped_steps"] == 1
        first = read_steps(steps_path(run.timing_dir(1), 0)).steps
        assert len(first) == 4
        assert np.flatnonzero(np.isinf(first["grad_norm"])).tolist() == [3]
    else:
        steps = read_steps(steps_path(run.timing_dir(), 0)).steps
        assert steps["step"].tolist() == list(range(6))
        assert np.flatnonzero(np.isinf(steps["grad_norm"])).tolist() == [step]
    skips = [record.getMessage() for record in caplog.records if "is skipped" in record.message]
    assert len(skips) == 1
    assert skips[0].startswith(f"step {step} is skipped on all ranks")


def test_nothing_is_applied_behind_a_fault_though_the_host_reads_it_a_step_later(
    make_train_run, monkeypatch
):
    weights, run = [], make_train_run(num_steps=6)
    update = loop._update

    def watched(setup, step, verdict):
        rate = update(setup, step, verdict)
        whole = [p.detach().clone() for p in setup.made.spread.bare.parameters()]
        weights.append(torch.cat([p.flatten() for p in whole]))
        return rate

    monkeypatch.setattr(loop, "_update", watched)
    poison_step(monkeypatch, 3, loss=False)
    with pytest.raises(StageError, match=r"the loss of step 3 is .* gradient norm (nan|inf)"):
        run.run_here()
    # Four updates: that of step 3 changed nothing, and there is none of step 4.
    assert len(weights) == 4
    assert not torch.equal(weights[1], weights[2])
    assert torch.equal(weights[2], weights[3])
