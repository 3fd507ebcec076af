"""Libraries that a training needs and lacks."""

from __future__ import annotations

import sys

import pytest

from pipeline.train.phase import phases_of
from pipeline.train.preflight.library_check import library_problem
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.train.configs import config_of

PLAIN = TrainConfig(num_steps=1)
PHASES = [
    {"name": "first", "num_steps": 1},
    {"name": "second", "num_steps": 1, "optimizer": {"kind": "adamw_8bit"}},
]


@pytest.mark.parametrize(
    ("values", "library", "told"),
    [
        ({"adapters": {"rank": 4}}, "peft", "adapters"),
        ({"adapters": {"rank": 4}, "quantize": {}}, "bitsandbytes", "quantize"),
        ({"optimizer": {"kind": "adamw_8bit"}}, "bitsandbytes", "optimizer.kind: adamw_8bit"),
        (
            {"num_steps": None, "phases": PHASES},
            "bitsandbytes",
            "phases.1.optimizer.kind: adamw_8bit",
        ),
    ],
)
def test_a_missing_library_is_named_with_the_key_that_needs_it(monkeypatch, values, library, told):
    phases = phases_of(config_of(**values))
    assert library_problem(phases) is None
    monkeypatch.setitem(sys.modules, library, None)
    problem = library_problem(phases)
    assert problem.startswith(f"{told} needs {library}")
    assert f"-m pip install --force-reinstall {library}; or " in problem


def test_a_training_that_needs_none_of_them_does_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert library_problem(phases_of(PLAIN)) is None
