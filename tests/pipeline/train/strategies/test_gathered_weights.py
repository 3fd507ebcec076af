"""Looks of one rank at weights that are sharded."""

from __future__ import annotations

import pytest

from tests.pipeline.train.conftest import TINY_MODEL
from tests.pipeline.train.test_held_out import config_of

UNEQUAL = {
    "strategy": "fsdp2",
    "num_steps": 3,
    "sharding": {"unit_min_params": 0},
    "collective_timeout_min": 1,
}
TWO_LAYERS = {part: {**sizes, "num_layers": 2} for part, sizes in TINY_MODEL.items()}


@pytest.mark.slow
def test_a_look_that_asks_one_rank_keeps_the_next_backward_pass_in_step(make_train_run, heldout):
    """All learns: the first unit of the model is the first that has a gradient."""
    look = {"manifest": heldout, "every_steps": 1, "num_answers": 1, "max_new_tokens": 4}
    make_train_run(**UNEQUAL, model=TWO_LAYERS, evaluate=look).run()


@pytest.mark.slow
def test_models_of_transformers_generate_without_communication(made, make_train_run):
    config = config_of(made, every=1, **UNEQUAL)
    config["evaluate"]["num_answers"] = 1
    make_train_run(**config).run()
