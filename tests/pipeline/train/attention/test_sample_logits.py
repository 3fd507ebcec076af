"""Passes for the logits of a sample, which leave the model as it was."""

from __future__ import annotations

import random

import pytest
import torch

from pipeline.train.attention.sample_logits import SampleLogits
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.single import Single
from pipeline.train.strategies.strategy import ParallelModel

CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


@pytest.fixture
def kind(make_kind):
    return make_kind("qwen2_vl")


@pytest.fixture
def compute(kind) -> SampleLogits:
    model = kind.build().train()
    optimizer = torch.optim.SGD(model.parameters())
    parallel = ParallelModel(model=model, bare=model, optimizer=optimizer)
    return SampleLogits(strategy=Single(CPU), parallel=parallel, rank_device=CPU)


def test_logits_are_those_of_the_first_and_last_tokens(kind, compute, monkeypatch):
    model, sample = compute.parallel.bare, kind.samples()[1]
    batch, num_tokens = kind.batch(model, [[sample]]), len(sample.input_ids)
    whole = compute(batch, 0, num_tokens)
    assert len(whole) == num_tokens
    monkeypatch.setattr("pipeline.train.attention.sample_logits._NUM_ENDS", 3)
    ends = compute(batch, 0, num_tokens)
    torch.testing.assert_close(ends, torch.cat([whole[:3], whole[-3:]]))


def test_generators_buffers_and_modes_are_restored(compute):
    model = compute.parallel.bare
    layer = model.towers()[1][0]
    layer.eval()
    layer.register_buffer("num_calls", torch.zeros(1))
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), random.getstate()
    with compute.undisturbed():
        assert model.training
        assert not any(module.training for module in model.children())
        torch.rand(3)
        random.random()
        layer.num_calls += 1
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert layer.num_calls == 0


def test_rounding_noise_changes_little_and_ends(kind, compute):
    batch = kind.batch(compute.parallel.bare, [kind.samples()[:1]])
    plain = compute(batch, 0, 5)
    with compute.rounding_noise(1e-4):
        noisy = compute(batch, 0, 5)
    share = (noisy - plain).norm() / plain.norm()
    assert 1e-6 < share < 1e-2
    assert torch.equal(compute(batch, 0, 5), plain)
