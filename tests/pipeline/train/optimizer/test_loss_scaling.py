"""The scale of the loss, and steps that are skipped."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.train import loop, trainer
from pipeline.train.checkpoints.save_decision import Boundary
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.optimizer.loss_scaling import LossScaling, _Scaler
from pipeline.train.trained_model import bare_model
from pipeline.train.verdict import judge
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.formats.configs.training_parts import ScalerConfig
from tests.pipeline.models.host_reads import DEVICE, HostReads
from tests.pipeline.train.conftest import TINY_MODEL
from tests.pipeline.train.other_rank import OtherRank


def scaling(precision="fp16", **config):
    cpu = RankDevice(device=torch.device("cpu"), precision=precision, num_compute_threads=1)
    return LossScaling(ScalerConfig(**{"init_scale": 8.0, **config}), cpu)


def take_step(scaling, *, skip=False):
    """The gradient before and after it is unscaled, and the weight after its update."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    loss = (2 * weight).sum()
    scaling.backward(loss)
    before = weight.grad.item()
    scaling.unscale(optimizer)
    after = weight.grad.item()
    ranks = OtherRank(is_bad=skip)
    verdict = judge(loss.detach(), weight.grad[0], scaling.scale_on_device, ranks)
    scaling.step(optimizer, verdict)
    scaling.count(is_skipped=not verdict.read().is_finite)
    return before, after, weight.item()


def test_gradients_are_scaled_in_the_backward_pass_alone():
    assert take_step(scaling()) == (16.0, 2.0, 0.0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_nothing_is_scaled_under_other_precisions(precision):
    off = scaling(precision)
    assert take_step(off) == (2.0, 2.0, 0.0)
    assert not off.is_on
    assert off.state_dict() == {}


class OnCard:
    """Stands in for a number that is still to be computed on a GPU: whoever reads it waits."""

    device = torch.device("cuda")

    def __init__(self, number):
        self.number, self.num_waits = number, 0

    def cpu(self):
        self.num_waits += 1
        return torch.tensor(self.number)


def test_gradients_on_the_host_are_divided_by_a_scale_that_has_come_there():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    weight.grad = torch.tensor([16.0])
    optimizer = torch.optim.SGD([weight])
    inverse, is_infinite = OnCard(0.125), OnCard(0.0)
    _Scaler("cpu")._unscale_grads_(optimizer, inverse, is_infinite, False)
    assert weight.grad.item() == 2.0
    assert (inverse.num_waits, is_infinite.num_waits) == (1, 1)


def test_an_agreed_skip_halves_the_scale_though_this_rank_saw_no_overflow():
    here = scaling(growth_interval=2)
    take_step(here)
    assert take_step(here, skip=True) == (16.0, 2.0, 1.0)
    assert (here.scale, here.num_skips_in_a_row, here.num_skips) == (4.0, 1, 1)
    take_step(here)
    assert (here.scale, here.num_skips_in_a_row) == (4.0, 0), "the count to growth began anew"
    take_step(here)
    assert (here.scale, here.num_skips) == (8.0, 1)


def test_scale_and_counts_go_on_where_they_were():
    one, other = scaling(growth_interval=3), scaling(growth_interval=3, init_scale=2.0)
    take_step(one, skip=True)
    take_step(one)
    take_step(one)
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    take_step(other)
    assert (other.scale, other.num_skips) == (8.0, 1)


FP16 = {
    "precision": "fp16",
    "scaler": {"init_scale": 2.0**20, "growth_interval": 2},
    "checkpoint": {"every_min": None, "every_steps": 3},
    "num_steps": 10,
}


def test_a_training_in_fp16_that_was_cut_short_ends_with_the_same_bits(make_train_run):
    whole, cut = make_train_run(**FP16), make_train_run(**FP16)
    result = whole.run_here()
    norms = whole.steps()["grad_norm"]
    assert result["num_skipped_steps"] == np.isinf(norms).sum() > 0
    shutil.copytree(whole.checkpoint(9), cut.checkpoint(9))
    again = cut.run_here()
    assert again["resumed_from_step"] == 9
    assert again["num_skipped_steps"] == result["num_skipped_steps"]
    assert cut.weights() == whole.weights()


def test_a_loss_that_is_not_finite_is_skipped_and_counted_under_fp16(make_train_run, monkeypatch):
    """The weights are those of a training in which the gradient of the same step overflowed."""
    runs = {kind: make_train_run(**{**FP16, "scaler": {}}) for kind in ("loss", "gradient")}
    results = {}
    for kind, run in runs.items():
        with monkeypatch.context() as patch:
            poison_step(patch, 3, loss=kind == "loss")
            results[kind] = run.run_here()
    steps = runs["loss"].steps()
    assert np.flatnonzero(np.isinf(steps["grad_norm"])).tolist() == [3]
    assert np.flatnonzero(~np.isfinite(steps["loss"])).tolist() == [3]
    assert results["loss"]["num_skipped_steps"] == results["gradient"]["num_skipped_steps"] == 1
    assert np.isfinite(results["loss"]["final_loss"])
    assert runs["loss"].weights() == runs["gradient"].weights()


INFLATED = {
    "precision": "fp16",
    "scaler": {"init_scale": 8.0, "max_skips": 2},
    "model": {**TINY_MODEL, "language": {**TINY_MODEL["language"], "num_layers": 2}},
}


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
def test_residual_sums_beyond_fp16_skip_no_step(make_train_run, monkeypatch, strategy):
    inflate_residual(monkeypatch, bare_model.keep_residual_in_fp32)
    result = make_train_run(**INFLATED, strategy=strategy).run_here()
    assert result["num_skipped_steps"] == 0
    assert np.isfinite(result["final_loss"])


def test_the_same_sums_overflow_where_the_residual_is_fp16(make_train_run, monkeypatch):
    inflate_residual(monkeypatch, cast_first_inputs_to_fp16)
    with pytest.raises(StageError, match="the loss or the gradients of 2 steps in a row"):
        make_train_run(**INFLATED, strategy="fsdp2").run_here()


def inflate_residual(patch, prepare):
    """Each layer of the language model adds 60,000, which fp16 holds once."""

    def prepare_inflated(model, device):
        prepare(model, device)
        for layer in model.towers()[1]:
            layer.mlp.register_forward_hook(lambda _module, _inputs, output: output + 60_000)

    patch.setattr(bare_model, "keep_residual_in_fp32", prepare_inflated)


def cast_first_inputs_to_fp16(model, _device):
    for tower in model.towers():
        tower[0].register_forward_pre_hook(lambda _layer, args: (args[0].half(), *args[1:]))


def poison_step(patch, step, *, loss, factor=math.inf):
    """In that step the loss is infinite or the like, or one parameter's gradient."""
    numbers, accumulate = itertools.count(), loop._accumulate

    def poisoned(setup, *args, **kwargs):
        losses = accumulate(setup, *args, **kwargs)
        if next(numbers) != step:
            return losses
        next(setup.model.parallel.bare.parameters()).grad.mul_(1.0 if loss else factor)
        return dataclasses.replace(losses, share=losses.share * factor) if loss else losses

    patch.setattr(loop, "_accumulate", poisoned)


def test_a_checkpoint_of_another_precision_is_gone_on_from(make_train_run, plain):
    run = make_train_run().take(plain, forget_after=3)
    assert run.run_here(precision="fp16")["resumed_from_step"] == 3
    assert run.run_here(precision="fp32")["resumed_from_step"] == 6


class Seen(Exception):  # noqa: N818 - no error
    """The loop has ended; nothing after it is of interest."""


def watch_loop(monkeypatch, seen):
    """Run the loop as if its device were another one, and note what the host reads of it."""
    run_steps, losses_of, backward = loop.run_steps, loop.losses_of, LossScaling.backward
    read = loop._read
    seen.events, seen.outside, seen.within, seen.before_forward = [], [], Counter(), Counter()

    def run(setup, start_step, watch):
        bare = setup.model.parallel.bare
        on_device = [*bare.parameters(), *bare.buffers()]
        setup.rank_device = dataclasses.replace(setup.rank_device, device=DEVICE)
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
    monkeypatch.setattr(LossScaling, "backward", passes(backward, None))
    monkeypatch.setattr(loop, "_read", note_read)
    return seen


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_host_waits_once_per_step_and_never_before_the_forward_pass(
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
    once_a_process = "pixel_scale._factors"
    assert {place.split(":")[0] for place in seen.reads.copied} <= {once_a_process}
    expected = [("begins", 0), ("forward",)]
    for step in range(1, 5):
        expected += [("begins", step), ("forward",), ("read", step - 1)]
    assert seen.events == [*expected, ("read", 4)]


@pytest.mark.parametrize(
    ("step", "stops"),
    [(2, False), (3, False), (3, True), (5, False)],
    ids=["before a checkpoint", "between two", "at a stop", "last"],
)
def test_a_skipped_step_is_counted_and_named_wherever_it_is(
    make_train_run, monkeypatch, caplog, step, stops
):
    run = make_train_run(**{**FP16, "scaler": {}, "num_steps": 6})
    agree = Boundary.agree

    def agree_to_stop(boundary, num_steps_done):
        agreed = agree(boundary, num_steps_done)
        is_asked = num_steps_done == step + 1
        return dataclasses.replace(agreed, save=agreed.save or is_asked, stop=is_asked)

    with monkeypatch.context() as patch:
        poison_step(patch, step, loss=False)
        if stops:
            patch.setattr(Boundary, "agree", agree_to_stop)
            with pytest.raises(StageStoppedError, match="after step 4 is saved"):
                run.run_here()
        else:
            result = run.run_here()
    if stops:
        result = run.run_here()
    assert result["num_skipped_steps"] == 1
    steps = run.steps(attempt=1)
    assert steps["step"].tolist() == list(range(4 if stops else 6))
    assert np.flatnonzero(np.isinf(steps["grad_norm"])).tolist() == [step]
    (skip,) = [record.getMessage() for record in caplog.records if "is skipped" in record.message]
    assert skip.startswith(f"step {step} is skipped on all ranks")


def test_nothing_is_applied_after_a_fault_that_the_host_reads_a_step_later(
    make_train_run, monkeypatch
):
    weights, run = [], make_train_run(num_steps=6)
    update = loop._update

    def watched(setup, step, verdict):
        rate = update(setup, step, verdict)
        whole = [p.detach().clone() for p in setup.model.parallel.bare.parameters()]
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
