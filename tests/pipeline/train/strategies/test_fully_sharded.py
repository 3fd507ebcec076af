"""What is gathered one at a time, and in which order it is asked for."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.train.strategies import prefetch_in_order, units_of


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
