"""Which parameters decay, the memory of the state, and groups of nothing across attempts."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.optimizer import optimizers as optimizer
from pipeline.train.optimizer.optimizers import make_optimizer, parameter_groups, state_bytes
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import OptimizerConfig
from tests.pipeline.train.tiny_runs import SAVED


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
def test_an_update_without_a_gradient_applies_only_the_weight_decay(kind):
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, OptimizerConfig(kind=kind, learning_rate=0.5, weight_decay=0.1)).step()
    shrunk = {"linear.weight": 1 - 0.5 * 0.1}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * shrunk.get(name, 1.0))


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


VECTORS = {**SAVED, "optimizer": {"learning_rate": 1e-2}, "learn": ["*.bias"]}


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_training_of_vectors_alone_resumes_even_from_an_empty_group(
    make_train_run, monkeypatch, strategy
):
    """Nothing has weight decay: a group of nothing would take the other's state."""
    run, older = make_train_run(**VECTORS), make_train_run(**VECTORS)
    run.check_resume(strategy=strategy)
    # An older version wrote such a group; without the mend the first step has no `betas`.
    with monkeypatch.context() as before:
        really = optimizer.parameter_groups
        nothing = {"params": [], "weight_decay": 0.5}
        before.setattr(optimizer, "parameter_groups", lambda *given: [nothing, *really(*given)])
        older.run_here(strategy=strategy)
    assert older.weights() == run.weights()
    older.forget(2)
    assert older.run_here(strategy=strategy)["resumed_from_step"] == 2
    assert older.weights() == run.weights()
