"""How strategies and files of accelerate share a model out, from the config alone."""

from __future__ import annotations

import pytest

from pipeline.train.memory.sharing import Sharing, sharing_of
from pipeline.train.strategies.rank_mesh import RankPlace
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.accelerate_file import understand
from tests.pipeline.train.configs import config_of
from tests.pipeline.train.memory.needs import WHOLE


def places(*counts: int) -> list[RankPlace]:
    return [
        RankPlace(node_name=f"node-{node}", local_rank=local)
        for node, count in enumerate(counts)
        for local in range(count)
    ]


def sharded(num_shards: int, **options) -> Sharing:
    return Sharing(is_sharded=True, num_shards=num_shards, **options)


OPTIONS = {
    "reshard_after_forward": False,
    "forward_prefetch": 2,
    "accumulate": "sharded",
    "cpu_offload": True,
}


@pytest.mark.parametrize(
    ("values", "ranks", "expected"),
    [
        ({}, (4, 4), sharded(8, accumulates_whole=True)),
        ({"sharding": {"within": "node"}}, (4, 4), sharded(4, accumulates_whole=True)),
        (
            {"sharding": OPTIONS},
            (2,),
            sharded(2, keeps_gathered=True, num_ahead=2, offloads=True),
        ),
        ({"strategy": "ddp"}, (2,), WHOLE),
        ({"strategy": "single"}, (2,), WHOLE),
    ],
)
def test_a_strategy_shares_out_as_the_config_says(values, ranks, expected):
    assert sharing_of(config_of(**values), None, places(*ranks)) == expected


def test_nodes_with_unequal_ranks_are_refused_before_anything_is_staged_in():
    with pytest.raises(StageConfigError, match="unequal numbers of ranks"):
        sharing_of(config_of(sharding={"within": "node"}), None, places(4, 3))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"distributed_type": "MULTI_GPU"}, WHOLE),
        (
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}},
            sharded(8, accumulates_whole=True, offloads=True),
        ),
        (
            {
                "distributed_type": "FSDP",
                "parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 4},
            },
            sharded(4, accumulates_whole=True),
        ),
    ],
)
def test_a_file_of_accelerate_shares_out_as_it_says(values, expected):
    by_file = config_of(strategy="accelerate", accelerate={"config": "a.yaml"})
    assert sharing_of(by_file, understand(values), places(4, 4)) == expected
