"""AdamW and clipping over local tensors: the bits of torch over DTensors, and its state."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from pipeline.train.optimizer.gradient_clipping import clip_gradients
from pipeline.train.optimizer.local_adamw import LocalAdamW

SHAPES = [(7, 5), (3,), (1, 4), (6, 2, 2)]
"""The first rank of two has 4, 2, 1 and 3 rows."""
OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}


@pytest.fixture(scope="module", params=["sharded", "hybrid"])
def placements(request):
    """Of the first rank, in a process group whose other ranks send nothing."""
    size = {"sharded": (2,), "hybrid": (2, 2)}[request.param]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(size))
    mesh = dist.init_device_mesh("cpu", size)
    yield mesh, (Replicate(), Shard(0))[-len(size) :]
    dist.destroy_process_group()


def make_parameters(placements):
    mesh, kinds = placements
    torch.manual_seed(0)
    whole = [torch.randn(shape) for shape in SHAPES]
    return [nn.Parameter(distribute_tensor(w, mesh, kinds, src_data_rank=None)) for w in whole]


def set_gradients(parameters, step):
    torch.manual_seed(step + 1)
    for parameter in parameters:
        local = torch.randn_like(parameter.to_local())
        parameter.grad = DTensor.from_local(
            local, parameter.device_mesh, parameter.placements,
            shape=parameter.shape, stride=parameter.stride(),
        )  # fmt: skip


def numbers_of(optimizer, parameters):
    moments = [optimizer.state[p][key] for p in parameters for key in ("exp_avg", "exp_avg_sq")]
    return [t.detach().to_local().clone() for t in (*parameters, *moments)]


def step_of_torch(optimizer, parameters, max_norm):
    norm = nn.utils.clip_grad_norm_(parameters, math.inf if max_norm is None else max_norm)
    optimizer.step()
    return norm.full_tensor()


def our_step(optimizer, parameters, max_norm):
    norm = clip_gradients(parameters, max_norm)
    optimizer.step()
    return norm


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("max_norm", [None, 0.5, 1e6])
def test_norm_update_and_state_are_those_of_torch_bit_for_bit(placements, max_norm):
    theirs, ours = make_parameters(placements), make_parameters(placements)
    reference, optimizer = torch.optim.AdamW(theirs, **OPTIONS), LocalAdamW(ours, **OPTIONS)
    for step in range(3):
        set_gradients(theirs, step)
        set_gradients(ours, step)
        expected = step_of_torch(reference, theirs, max_norm)
        assert torch.equal(our_step(optimizer, ours, max_norm), expected)
    assert same(numbers_of(optimizer, ours), numbers_of(reference, theirs))


@pytest.mark.parametrize("way", ["from torch's", "to torch's"])
def test_state_goes_on_in_either_optimizer(placements, way):
    """A checkpoint of an older version, or one that an older version goes on from."""
    parameters = make_parameters(placements)
    first, then = torch.optim.AdamW, LocalAdamW
    if way == "to torch's":
        first, then = then, first
    optimizer = first(parameters, **OPTIONS)
    set_gradients(parameters, 0)
    our_step(optimizer, parameters, 1.0)
    others = copy.deepcopy(parameters)
    other = then(others, **OPTIONS)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moment = other.state[others[0]]["exp_avg"]
    assert isinstance(moment, DTensor)
    assert moment.placements == others[0].placements
    for each, its in ((optimizer, parameters), (other, others)):
        set_gradients(its, 1)
        our_step(each, its, 1.0)
    assert same(numbers_of(other, others), numbers_of(optimizer, parameters))


def test_a_flag_of_the_device_skips_the_update_of_all_parts(placements):
    parameters = make_parameters(placements)
    optimizer = LocalAdamW(parameters, **OPTIONS)
    set_gradients(parameters, 0)
    optimizer.step()
    before = numbers_of(optimizer, parameters)
    set_gradients(parameters, 1)
    parameters[0].grad.to_local().fill_(math.nan)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert same(numbers_of(optimizer, parameters), before)
    assert {float(optimizer.state[p]["step"]) for p in parameters} == {1.0}
