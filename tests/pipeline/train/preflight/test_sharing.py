"""How strategies and files of accelerate share a model out, from the config alone."""

from __future__ import annotations

import pytest

from pipeline.train.memory import Sharing, sharing_of
from pipeline.train.strategies import Place
from slurm_jobs.shared.accelerate_file import understand
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

WHOLE = Sharing(is_sharded=False, num_shards=1)


def places(*counts: int) -> list[Place]:
    return [
        Place(node_name=f"node-{node}", local_rank=local)
        for node, count in enumerate(counts)
        for local in range(count)
    ]


def config(**values) -> TrainConfig:
    return build_config(TrainConfig, {"num_steps": 1, **values})


def test_fsdp2_shares_out_over_all_ranks_or_those_of_a_node():
    found = sharing_of(config(), None, places(4, 4))
    assert found == Sharing(is_sharded=True, num_shards=8, accumulates_whole=True)
    within = sharing_of(config(sharding={"within": "node"}), None, places(4, 4))
    assert within.num_shards == 4


def test_nodes_with_unequal_ranks_are_refused_before_anything_is_staged_in():
    with pytest.raises(StageConfigError, match="unequal numbers of ranks"):
        sharing_of(config(sharding={"within": "node"}), None, places(4, 3))


def test_what_sharding_says_is_taken_over():
    sharding = {
        "reshard_after_forward": False,
        "forward_prefetch": 2,
        "accumulate": "sharded",
        "cpu_offload": True,
    }
    assert sharing_of(config(sharding=sharding), None, places(2)) == Sharing(
        is_sharded=True, num_shards=2, keeps_gathered=True, num_ahead=2, offloads=True
    )


@pytest.mark.parametrize("strategy", ["ddp", "single"])
def test_other_strategies_have_the_whole_on_every_rank(strategy):
    assert sharing_of(config(strategy=strategy), None, places(2)) == WHOLE


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"distributed_type": "MULTI_GPU"}, WHOLE),
        (
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}},
            Sharing(is_sharded=True, num_shards=8, accumulates_whole=True, offloads=True),
        ),
        (
            {
                "distributed_type": "FSDP",
                "parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 4},
            },
            Sharing(is_sharded=True, num_shards=4, accumulates_whole=True),
        ),
    ],
)
def test_a_file_of_accelerate_shares_out_as_it_says(values, expected):
    by_file = config(strategy="accelerate", accelerate={"config": "a.yaml"})
    assert sharing_of(by_file, understand(values), places(4, 4)) == expected
