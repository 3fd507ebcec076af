"""The scale of the loss: what it does to gradients, when it changes, and after a resume."""

import itertools
import math
import shutil

import numpy as np
import pytest
import torch

from pipeline.train import loop
from pipeline.train import prepare as prepare_module
from pipeline.train.device import Scaling, Workplace, _Scaler
from pipeline.train.verdict import judge
from slurm_jobs.shared.configs.training_parts import ScalerConfig
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.timings import read_steps, steps_path
from tests.pipeline.train.conftest import TINY_MODEL


def scaling(precision="fp16", **config):
    cpu = Workplace(device=torch.device("cpu"), precision=precision, num_compute_threads=1)
    return Scaling(ScalerConfig(**{"init_scale": 8.0, **config}), cpu)


class OtherRank:
    """Adds a verdict of its own to this rank's."""

    def __init__(self, *, is_bad):
        self.numbers = torch.tensor([0.0, float(is_bad)], dtype=torch.float64)

    def sum_on_device(self, tensor):
        tensor.add_(self.numbers)


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
    norms = read_steps(steps_path(whole.timing_dir(), 0)).steps["grad_norm"]
    assert result["num_skipped_steps"] == np.isinf(norms).sum() > 0
    name = "checkpoints/step-00000009"
    shutil.copytree(whole.output_dir / name, cut.output_dir / name)
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
    steps = read_steps(steps_path(runs["loss"].timing_dir(), 0)).steps
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
    inflate_residual(monkeypatch, prepare_module.keep_residual_in_fp32)
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

    patch.setattr(prepare_module, "keep_residual_in_fp32", prepare_inflated)


def cast_first_inputs_to_fp16(model, _device):
    for tower in model.towers():
        tower[0].register_forward_pre_hook(lambda _layer, args: (args[0].half(), *args[1:]))


def poison_step(patch, step, *, loss):
    """In that step the loss is infinite, or one parameter's gradient."""
    numbers, accumulate = itertools.count(), loop._accumulate

    def poisoned(setup, *args, **kwargs):
        share = accumulate(setup, *args, **kwargs)
        if next(numbers) != step:
            return share
        next(setup.made.spread.bare.parameters()).grad.mul_(1.0 if loss else math.inf)
        return share * math.inf if loss else share

    patch.setattr(loop, "_accumulate", poisoned)


def test_a_checkpoint_of_another_precision_is_gone_on_from(make_train_run):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    run.run_here()
    shutil.rmtree(run.output_dir / "checkpoints/step-00000006")
    assert run.run_here(precision="fp16")["resumed_from_step"] == 3
    assert run.run_here(precision="fp32", num_steps=6)["resumed_from_step"] == 6
