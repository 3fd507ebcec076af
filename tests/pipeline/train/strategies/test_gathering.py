"""Ranks that ask for unlike numbers of answers stay in step, while they answer and after."""

from __future__ import annotations

import pytest

from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.conftest import TINY_MODEL
from tests.pipeline.train.test_held_out import config_of

UNEQUAL = {
    "strategy": "fsdp2",
    "num_steps": 3,
    "sharding": {"unit_min_params": 0},
    "collective_timeout_min": 1,
}
TWO_LAYERS = {part: {**sizes, "num_layers": 2} for part, sizes in TINY_MODEL.items()}


def finish(run):
    ends = run.finish(run.start(2))
    assert [code for code, _ in ends] == [0, 0], ends


@pytest.mark.slow
def test_a_look_that_asks_one_rank_alone_leaves_the_next_backward_pass_in_step(
    make_train_run, demo_data
):
    """All learns: the first unit of the model is the first that has a gradient."""
    manifest = str(demo_data / "render" / "heldout.jsonl")
    look = {"manifest": manifest, "every_steps": 1, "num_answers": 1, "max_new_tokens": 4}
    finish(make_train_run(**UNEQUAL, model=TWO_LAYERS, evaluate=look))


@pytest.mark.slow
def test_models_of_transformers_meet_nobody_while_they_answer(make_train_run, tmp_path):
    made = write_dataset("qwen2_5_vl", tmp_path), write_tiny("qwen2_5_vl", tmp_path / "model")
    config = config_of(made, every=1, **UNEQUAL)
    config["evaluate"]["num_answers"] = 1
    finish(make_train_run(**config))
