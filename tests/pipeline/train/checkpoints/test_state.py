"""The state of a training: collected, compared, put together from parts, read from strangers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)

from pipeline.train.checkpoints.generator_state import rng_state
from pipeline.train.checkpoints.rank_optimizer_state import join_parts
from pipeline.train.checkpoints.state_differences import compare
from pipeline.train.checkpoints.training_state import TrainingState
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.optimizer.optimizers import make_optimizer
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import OptimizerConfig

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


def test_the_state_of_a_gpus_generator_is_saved_only_for_training_on_a_gpu(monkeypatch):
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


def stored_tensor(*size, dtype=torch.float32):
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype), size=torch.Size(size), chunks=[]
    )


STORED = {
    "model.a": stored_tensor(2, 3),
    "optimizer.param_groups.0.lr": BytesStorageMetadata(),
    "rng.rank-00000.cpu": stored_tensor(8, dtype=torch.uint8),
    "rng.rank-00001.cpu": stored_tensor(8, dtype=torch.uint8),
}


def state(*, dtype=torch.float32, **more):
    a = torch.zeros(2, 3, dtype=dtype)
    rng = {"rank-00000": {"cpu": torch.zeros(8, dtype=torch.uint8)}}
    return {"model": {"a": a}, "optimizer": {"param_groups": [{"lr": 0.1, **more}]}, "rng": rng}


def test_a_rank_wants_its_own_generators_and_not_those_of_others():
    assert not compare(STORED, state())


def test_dtypes_are_compared_though_torch_would_cast():
    differences = compare(STORED, state(dtype=torch.bfloat16))
    assert list(differences.different) == [
        "model.a ((2, 3) of torch.float32 in the checkpoint, (2, 3) of torch.bfloat16 now)"
    ]


def test_a_tensor_where_a_value_is_wanted_is_a_difference():
    stored = {**STORED, "optimizer.param_groups.0.lr": stored_tensor()}
    assert str(compare(stored, state())) == (
        "different: optimizer.param_groups.0.lr (() of torch.float32 in the checkpoint, "
        "a value now)"
    )


def test_the_first_missing_names_are_listed_and_the_others_counted():
    more = {f"option_{n}": n for n in range(7)}
    names = ", ".join(f"optimizer.param_groups.0.option_{n}" for n in range(5))
    assert str(compare(STORED, state(**more))) == f"not in the checkpoint: {names} and 2 more"


def test_unexpected_tensors_are_listed_but_not_options_of_another_torch():
    stored = {
        **STORED,
        "optimizer.state.a.exp_avg": stored_tensor(2, 3),
        "optimizer.param_groups.0.decoupled": BytesStorageMetadata(),
    }
    assert list(compare(stored, state()).unexpected) == ["optimizer.state.a.exp_avg"]


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
