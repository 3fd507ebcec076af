"""Libraries that some trainings need are looked for before anything is staged."""

from __future__ import annotations

import sys

import pytest

from pipeline.train.job import phases_of
from pipeline.train.preflight import library_problem
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import TrainConfig

LORA = {"rank": 4}
PHASES = [
    {"name": "first", "num_steps": 1},
    {"name": "second", "num_steps": 1, "optimizer": {"kind": "adamw_8bit"}},
]


def problem_of(values):
    return library_problem(phases_of(build_config(TrainConfig, values)))


@pytest.mark.parametrize(
    ("values", "library", "told"),
    [
        ({"num_steps": 1, "adapters": LORA}, "peft", "adapters needs peft"),
        (
            {"num_steps": 1, "adapters": LORA, "quantize": {}},
            "bitsandbytes",
            "quantize needs bitsandbytes",
        ),
        (
            {"num_steps": 1, "optimizer": {"kind": "adamw_8bit"}},
            "bitsandbytes",
            "optimizer.kind: adamw_8bit needs bitsandbytes",
        ),
        (
            {"phases": PHASES},
            "bitsandbytes",
            "phases.1.optimizer.kind: adamw_8bit needs bitsandbytes",
        ),
    ],
)
def test_a_library_that_cannot_be_loaded_is_named_with_the_key_that_needs_it(
    monkeypatch, values, library, told
):
    assert problem_of(values) is None
    monkeypatch.setitem(sys.modules, library, None)
    problem = problem_of(values)
    assert problem.startswith(told)
    assert f"-m pip install --force-reinstall {library}; or " in problem


def test_a_training_that_needs_none_of_them_does_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert problem_of({"num_steps": 1}) is None
