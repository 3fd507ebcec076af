"""The state of a training, collected before and after updates."""

from __future__ import annotations

import torch
from torch import nn

from pipeline.train.checkpoints.training_state import TrainingState

NUM_UPDATES = 3


def train(*, collected: bool) -> tuple[nn.Module, float]:
    """A model after a few updates, and of how many the state told that was collected before."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    told = 0.0
    if collected:
        state = TrainingState(model=model, optimizer=optimizer).collect(rank=0)
        told = float(state["optimizer"]["state"]["weight"]["step"])
    for number in range(NUM_UPDATES):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.1 * (number + 1))
        optimizer.step()
    return model, told


def test_a_save_before_the_first_update_changes_no_update():
    """As after steps that were skipped under fp16, or where a stop came during the first."""
    (plain, _), (saved, num_updates) = train(collected=False), train(collected=True)
    assert num_updates == 0
    assert torch.equal(saved.weight, plain.weight)
    assert torch.equal(saved.bias, plain.bias)
