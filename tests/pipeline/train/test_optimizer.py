"""Which parameters decay, and by how much; of every kind."""

import pytest
import torch

from pipeline.train.optimizer import (
    make_optimizer,
    parameter_groups,
    set_learning_rate,
    state_bytes,
)
from slurm_jobs.shared.configs.training_parts import OptimizerConfig
from slurm_jobs.shared.errors import StageConfigError


def make_model():
    return torch.nn.ModuleDict(
        {"linear": torch.nn.Linear(2, 2), "position_embedding": torch.nn.Embedding(2, 2)}
    )


def test_matrices_decay_and_vectors_and_positions_do_not():
    model = make_model()
    decayed, plain = parameter_groups(model, 0.1)
    assert [p is model["linear"].weight for p in decayed["params"]] == [True]
    assert decayed["weight_decay"] == 0.1
    assert len(plain["params"]) == 2
    assert plain["weight_decay"] == 0.0


def test_a_group_of_nothing_is_left_out():
    model = make_model()
    model["linear"].weight.requires_grad_(False)
    (plain,) = parameter_groups(model, 0.1)
    assert plain["weight_decay"] == 0.0
    assert len(plain["params"]) == 2


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit"])
def test_without_a_gradient_an_update_shrinks_matrices_by_the_weight_decay_alone(kind):
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, OptimizerConfig(kind=kind, learning_rate=0.5, weight_decay=0.1)).step()
    shrunk = {"linear.weight": 1 - 0.5 * 0.1}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * shrunk.get(name, 1.0))


def test_learning_rate_of_a_step_is_the_one_that_was_set_last():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw_8bit", weight_decay=0.0))
    set_learning_rate(optimizer, 0.25)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.25)


def test_a_parameter_that_was_replaced_is_not_updated_in_silence():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw_8bit"))
    model.weight.data = model.weight.data.clone()
    model.weight.grad = torch.ones_like(model.weight)
    with pytest.raises(AssertionError):
        optimizer.step()


@pytest.mark.parametrize("kind", ["paged_adamw", "paged_adamw_8bit"])
def test_paged_state_is_refused_without_a_gpu(kind):
    with pytest.raises(StageConfigError, match=f"{kind}, .* are on a cpu: set `kind: adamw"):
        make_optimizer(make_model(), OptimizerConfig(kind=kind))


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit"])
def test_the_memory_of_the_state_is_known_before_there_is_one(kind):
    config = OptimizerConfig(kind=kind)
    model = torch.nn.ModuleList([torch.nn.Linear(512, 512), torch.nn.Linear(8, 8)])
    optimizer = make_optimizer(model, config)
    expected = state_bytes(optimizer, config, "cpu")
    assert state_bytes(optimizer, config, "cuda") == 0  # where weights are offloaded
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = optimizer.state_dict()
    states = states["state"] if kind == "adamw" else states
    moments = [
        value.nbytes
        for state in states.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.ndim
    ]
    assert sum(moments) == pytest.approx(expected, rel=0.02)
