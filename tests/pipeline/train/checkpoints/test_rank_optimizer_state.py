"""Optimizer state of several ranks, put together to that of the whole model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pipeline.train.checkpoints.rank_optimizer_state import join_parts
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.optimizer.optimizers import make_optimizer
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import OptimizerConfig

ROWS, COLUMNS, NUM_STEPS = 128, 64, 3
CONFIG = OptimizerConfig(kind="adamw_8bit", learning_rate=1e-2)


class Part(nn.Module):
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())


def make(weight: torch.Tensor, bias: torch.Tensor) -> tuple[Part, LocalOptimizer]:
    part = Part(weight, bias)
    return part, make_optimizer(part, CONFIG)


def update(part: Part, optimizer: LocalOptimizer, rows: slice, step: int) -> None:
    draw = torch.Generator().manual_seed(step)
    part.weight.grad = torch.randn(ROWS, COLUMNS, generator=draw)[rows]
    part.bias.grad = torch.randn(ROWS, generator=draw)[rows]
    optimizer.step()


@pytest.fixture
def halves():
    torch.manual_seed(0)
    weight, bias = torch.randn(ROWS, COLUMNS), torch.randn(ROWS)
    found = []
    for rows in (slice(0, 64), slice(64, 128)):
        part, optimizer = make(weight[rows], bias[rows])
        for step in range(NUM_STEPS):
            update(part, optimizer, rows, step)
        found.append((part, optimizer))
    return found


def whole_of(halves) -> tuple[Part, LocalOptimizer]:
    return make(
        torch.cat([part.weight.detach() for part, _ in halves]),
        torch.cat([part.bias.detach() for part, _ in halves]),
    )


def states_of(halves) -> dict:
    return {f"rank-{n:05d}": optimizer.state_dict() for n, (_, optimizer) in enumerate(halves)}


def test_the_next_update_of_the_whole_is_that_of_the_parts(halves):
    part, optimizer = whole_of(halves)
    join_parts(optimizer, states_of(halves))
    state = optimizer.state_dict()
    assert state["weight"]["state1"].dtype == torch.uint8
    assert state["weight"]["step"] == NUM_STEPS
    update(part, optimizer, slice(None), NUM_STEPS)
    for rows, (half, theirs) in zip((slice(0, 64), slice(64, 128)), halves, strict=True):
        update(half, theirs, rows, NUM_STEPS)
        # Biases are small, and kept in 32 bits: exact.
        assert torch.equal(part.bias[rows], half.bias)
        torch.testing.assert_close(part.weight[rows], half.weight, rtol=0, atol=1e-3)
    fresh, alone = whole_of(halves)
    update(fresh, alone, slice(None), NUM_STEPS)
    assert not torch.equal(fresh.bias, part.bias), "nothing was taken over"


def test_parts_that_several_ranks_have_count_once(halves):
    _, optimizer = whole_of(halves)
    join_parts(optimizer, states_of([*halves, *halves]))
    _, once = whole_of(halves)
    join_parts(once, states_of(halves))
    found, expected = optimizer.state_dict(), once.state_dict()
    for name, state in expected.items():
        assert torch.equal(found[name]["state1"], state["state1"])
        assert torch.equal(found[name]["state2"], state["state2"])


def test_state_that_is_not_whole_is_refused_by_name_and_count(halves):
    _, optimizer = whole_of(halves)
    with pytest.raises(StageConfigError, match="has 4096 of 8192 numbers of weight: continue with"):
        join_parts(optimizer, states_of(halves[:1]))
