"""PyTorch compared with cards and driver, and variables that make NCCL slow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.slurm_jobs.nodes.judged_nodes import V100, judged
from tests.slurm_jobs.nodes.made_facts import named, node


@pytest.mark.parametrize(
    ("torch", "driver", "name", "standing"),
    [
        ({"cards": (V100,) * 4}, "560.28", "torch", "ok"),
        ({"cards": (V100,) * 2}, "560.28", "torch", "problem"),
        ({"cards": (), "cuda_problem": "no driver"}, "", "torch", "problem"),
        ({"cards": (replace(V100, problem="no code for it"),)}, "560.28", "torch", "problem"),
        ({"cards": (V100,) * 4}, "470.57", "cuda-driver", "problem"),
        ({"cards": (V100,) * 4}, "560.28", "cuda-driver", "ok"),
        ({"cards": (V100,) * 4}, "", "cuda-driver", "unknown"),
        ({"cards": (V100,) * 4, "nccl": ""}, "560.28", "nccl", "problem"),
    ],
)
def test_the_wheel_is_compared_with_cards_and_driver(
    torch: dict[str, Any], driver: str, name: str, standing: str
) -> None:
    facts = replace(node().torch, **torch)
    checks = judged(node(torch=facts, driver=driver), gpus_per_node=4)
    assert named(checks, name).standing == standing


def test_a_variable_that_makes_nccl_slow_is_a_warning_that_names_it() -> None:
    torch = replace(node().torch, cards=(V100,))
    facts = node(torch=torch, environment={"NCCL_IB_DISABLE": "1"}, driver="560.28")
    check = named(judged(facts, gpus_per_node=1), "nccl")
    assert check.standing == "warning"
    assert "NCCL_IB_DISABLE" in check.told
