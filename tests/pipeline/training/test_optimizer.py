"""Which parameters decay, and by how much."""

import torch

from pipeline.training.optimizer import make_optimizer, parameter_groups
from slurm_jobs.common.stage_config.optimizer import OptimizerConfig


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


def test_without_a_gradient_an_update_shrinks_matrices_by_the_weight_decay_alone():
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, OptimizerConfig(learning_rate=0.5, weight_decay=0.1)).step()
    shrunk = {"linear.weight": 1 - 0.5 * 0.1}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * shrunk.get(name, 1.0))
