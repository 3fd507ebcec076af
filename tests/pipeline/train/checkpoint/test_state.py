"""What collecting the state does to the training that it is collected from: nothing."""

from __future__ import annotations

import torch
from torch import nn

from pipeline.train.checkpoint_state import TrainingState, rng_state

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


def test_a_save_before_the_first_update_changes_no_update() -> None:
    """As after steps that were skipped under fp16, or where a stop came during the first."""
    (plain, _), (saved, num_updates) = train(collected=False), train(collected=True)
    assert num_updates == 0
    assert torch.equal(saved.weight, plain.weight)
    assert torch.equal(saved.bias, plain.bias)


def test_the_generator_of_a_gpu_is_asked_for_where_a_gpu_computes_alone(monkeypatch) -> None:
    """There is no GPU here: the answer is made up."""
    asked: list[torch.device] = []

    def get_rng_state(device: torch.device) -> torch.Tensor:
        asked.append(device)
        return torch.zeros(16, dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", get_rng_state)
    assert "cuda" not in rng_state(torch.device("cpu"))
    assert asked == []
    assert "cuda" in rng_state(gpu := torch.device("cuda", 1))
    assert asked == [gpu]
