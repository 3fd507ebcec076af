"""Strategies described in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pipeline.train.strategies.strategy import ParallelModel, StrategyFacts
from pipeline.train.strategy_checks.strategy_description import describe_parallel_model

FACTS = StrategyFacts(
    model_class="SmallVLM",
    mesh={},
    placements={"whole": 34},
    dtypes={"torch.float32": 34},
    devices={"cpu": 34},
    num_units=0,
    compute_dtypes=("torch.float32",),
    reduce_dtypes=(),
    num_recomputed=0,
    num_compiled=0,
)
STORED = "parameters are stored as fp32 on cpu"


def described(strategy: str, model: nn.Module | None = None, **changes: object) -> str:
    model = model or nn.Linear(1, 1)
    parallel = ParallelModel(model=model, bare=model, optimizer=torch.optim.SGD(model.parameters()))
    return describe_parallel_model(strategy, parallel, dataclasses.replace(FACTS, **changes))


@pytest.mark.parametrize(
    ("strategy", "changes", "said"),
    [
        (
            "single",
            {},
            "single: one rank has the whole model; forward and backward passes compute in fp32",
        ),
        (
            "ddp",
            {
                "mesh": {"replicate": 2},
                "compute_dtypes": ("torch.bfloat16",),
                "reduce_dtypes": ("torch.float32",),
            },
            (
                "ddp over 2 ranks: each has the whole model, gradients are averaged; forward and "
                "backward passes compute in bf16, gradients are reduced in fp32"
            ),
        ),
        (
            "fsdp2",
            {"mesh": {"replicate": 2, "shard": 4}, "compute_dtypes": ("torch.float16",)},
            (
                "fsdp2 over 8 ranks: parameters, gradients and optimizer are sharded over 4 of "
                "them, gradients are averaged over 2 such groups; forward and backward passes "
                "compute in fp16"
            ),
        ),
        (
            "accelerate",
            {"mesh": {"shard": 4}, "distributed_type": "FSDP"},
            (
                "accelerate (FSDP) over 4 ranks: parameters, gradients and optimizer are sharded "
                "over all of them; forward and backward passes compute in fp32"
            ),
        ),
    ],
)
def test_strategy_ranks_and_precision_are_described_in_words(strategy, changes, said):
    assert described(strategy, **changes) == f"{said}; {STORED}"


def test_packed_weights_and_layers_that_are_computed_again_are_counted():
    said = described(
        "single",
        dtypes={"torch.float32": 1200, "torch.uint8": 34},
        devices={"cuda": 1234},
        num_recomputed=4,
    )
    assert said.endswith(
        "; parameters are stored as fp32 (1,200) and uint8 (34) on cuda; 4 layers are recomputed "
        "in the backward pass"
    )


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_units_are_described_by_their_classes():
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("shard",))
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    said = described("fsdp2", model, mesh={"shard": 1}, num_units=3)
    assert "; 3 units gathered one at a time (1 Sequential, 2 Linear); " in said
