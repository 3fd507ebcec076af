"""Meshes, units, descriptions and checks of strategies, without the pair of ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pipeline.train.strategies.fully_sharded import prefetch_in_order, units_of
from pipeline.train.strategies.rank_mesh import RankPlace, shape_by_nodes
from pipeline.train.strategies.strategy import ParallelModel, StrategyFacts
from pipeline.train.strategy_checks.strategy_description import describe_parallel_model
from slurm_jobs.base.errors import StageConfigError


def places(*names):
    return [RankPlace(node_name=name[0], local_rank=int(name[1])) for name in names]


@pytest.mark.parametrize(
    ("names", "shape"),
    [(("a0", "a1", "b0", "b1"), (2, 2)), (("b0", "a0"), (2, 1)), (("a0", "a1", "a2"), (1, 3))],
)
def test_ranks_that_count_through_node_after_node_make_a_mesh(names, shape):
    assert shape_by_nodes(places(*names)) == shape


def test_nodes_with_unequal_numbers_of_ranks_are_refused():
    with pytest.raises(
        StageConfigError, match=r"\(2 on a, 1 on b\): give every node the same number"
    ):
        shape_by_nodes(places("a0", "a1", "b0"))


@pytest.mark.parametrize("names", [("a0", "b0", "a1", "b1"), ("a1", "a0", "b0", "b1")])
def test_ranks_in_another_order_are_refused(names):
    with pytest.raises(StageConfigError, match=r"rank \d is number \d on \w instead of .*block"):
        shape_by_nodes(places(*names))


class Unit(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
        self.asked = None

    def set_modules_to_forward_prefetch(self, modules):
        self.asked = modules


@pytest.mark.parametrize(
    ("num_ahead", "expected"),
    [
        (0, [None, None, None, None]),
        (1, [[0], [1], [2], []]),
        (2, [[0, 1], [1, 2], [2], []]),
    ],
)
def test_each_unit_asks_for_those_that_run_after_it(num_ahead, expected):
    root, *units = (Unit() for _ in range(4))
    prefetch_in_order(root, units, num_ahead)
    wanted = [None if n is None else [units[i] for i in n] for n in expected]
    assert [unit.asked for unit in (root, *units)] == wanted


@pytest.mark.parametrize(("min_params", "num_units"), [(0, 3), (8, 2), (9, 0)])
def test_layers_of_a_tower_with_too_few_parameters_are_no_units(min_params, num_units):
    towers = [[Unit()], [Unit(), Unit()]]  # of 4 and 8 parameters
    found = units_of(SimpleNamespace(towers=lambda: towers), min_params)
    assert found == [unit for tower in towers for unit in tower][3 - num_units :]


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
