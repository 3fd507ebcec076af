"""Units of a sharded model, and what its options change on two ranks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pipeline.train.strategies.fully_sharded import prefetch_in_order, units_of


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


SHARDED_ALIKE = (
    *("fsdp2, one unit", "hybrid within one node", "weights kept after forward"),
    *("prefetch of two", "offload", "gradients sharded"),
)


def test_gradients_accumulated_in_shards_are_reduced_per_microbatch(by_rank):
    first = [found["gradients sharded, first microbatch"] for found in by_rank]
    assert first[0]["num_gradients"] > 0
    assert first[0]["sum"] == first[1]["sum"] > 0


def test_gathered_layer_weights_are_freed_or_kept_after_the_forward_pass(found):
    names = ("fsdp2", "weights kept after forward")
    cases = [found[f"{name}, first microbatch"] for name in names]
    assert [case["layer_is_sharded_after_forward"] for case in cases] == [True, False]


@pytest.mark.parametrize("option", SHARDED_ALIKE)
def test_options_of_sharding_change_no_bit(found, option):
    assert found[option]["weights"] == found["fsdp2"]["weights"]


def test_facts_count_what_is_gathered_one_at_a_time(found):
    counts = [found[name]["facts"]["num_units"] for name in ("fsdp2", "fsdp2, one unit", "ddp")]
    assert counts == [5, 1, 0]
