"""A training on a chain of thought: a class, and two levels of text."""

from __future__ import annotations

from tests.pipeline.train.tiny_runs import tiny_config

COLOURS = ["red", "green", "blue"]
LEVELS = [
    {"name": "colour", "head": "classes", "classes": COLOURS},
    {"name": "thing"},
    {"name": "report", "weight": 2.0},
]


def config_of(chains, **changes):
    return tiny_config(chains, **{"num_steps": 120, "levels": LEVELS, **changes})
