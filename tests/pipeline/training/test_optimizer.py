"""Which parameters decay."""

import torch

from pipeline.training.optimizer import parameter_groups


def test_vectors_and_positions_have_no_weight_decay():
    model = torch.nn.ModuleDict(
        {"linear": torch.nn.Linear(2, 2), "position_embedding": torch.nn.Embedding(2, 2)}
    )
    decayed, plain = parameter_groups(model, 0.1)
    assert [p is model["linear"].weight for p in decayed["params"]] == [True]
    assert len(plain["params"]) == 2
    assert plain["weight_decay"] == 0.0
