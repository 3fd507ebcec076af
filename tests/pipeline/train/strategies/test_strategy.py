"""What the facts of each strategy say of meshes and placements."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("option", "mesh", "placement"),
    [
        ("fsdp2", {"shard": 2}, "Shard(dim=0)"),
        ("hybrid over two nodes", {"replicate": 2, "shard": 1}, "Replicate(), Shard(dim=0)"),
        ("hybrid within one node", {"replicate": 1, "shard": 2}, "Replicate(), Shard(dim=0)"),
        ("ddp", {"replicate": 2}, "whole"),
    ],
)
def test_facts_have_mesh_and_placement_of_the_model(found, option, mesh, placement):
    facts = found[option]["facts"]
    assert (facts["mesh"], list(facts["placements"])) == (mesh, [placement])
