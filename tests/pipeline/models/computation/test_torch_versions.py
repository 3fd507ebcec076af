"""Differences between versions of torch, as far as one environment shows them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.models.computation.torch_versions import param_groups_of


def unit_with(**state):
    return SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(**state))


@pytest.mark.parametrize(
    ("state", "groups"),
    [
        ({"_fsdp_param_groups": ["a", "b"], "_fsdp_param_group": "a"}, ["a", "b"]),
        ({"_fsdp_param_group": "a"}, ["a"]),
        ({"_fsdp_param_group": None}, []),
    ],
)
def test_the_groups_of_a_unit_are_those_that_torch_has_of_it(state, groups):
    assert param_groups_of(unit_with(**state)) == groups
