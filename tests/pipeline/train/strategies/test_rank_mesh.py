"""Ranks of nodes as a mesh."""

from __future__ import annotations

import pytest

from pipeline.train.strategies.rank_mesh import RankPlace, shape_by_nodes
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
