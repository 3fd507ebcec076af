"""A chain of thought from the manifest to the evaluation: text and classes, level by level."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from pipeline.train import stage
from tests.pipeline.models.tiny import CHAINS
from tests.pipeline.train.chain_config import LEVELS, config_of
from tests.pipeline.train.tiny_runs import rows_of


@pytest.mark.parametrize(
    ("kind", "num_ranks"),
    [
        ("packed", 1),
        pytest.param("packed", 2, marks=pytest.mark.slow),
        pytest.param("shuffled", 2, marks=pytest.mark.slow),
    ],
)
def test_all_levels_are_learned_and_said_one_after_the_other(
    chains, make_train_run, kind, num_ranks
):
    batching = {"kind": kind} | ({"max_tokens": 512} if kind == "packed" else {})
    evaluate = {"manifest": rows_of(chains), "max_new_tokens": 30}
    run = make_train_run(**config_of(chains, batching=batching, evaluate=evaluate))
    result = run.run_here() if num_ranks == 1 else run.run(num_ranks)
    assert result["evaluation"]["levels"] == {"colour": 1.0, "thing": 1.0, "report": 1.0}
    assert result["exact_match"] == 1.0
    lines = (run.output_dir / "generations.jsonl").read_text().splitlines()
    for line, (_, *expected) in zip(map(json.loads, lines), CHAINS, strict=True):
        said = {name: answer["generated"] for name, answer in line["levels"].items()}
        assert said == dict(zip(("colour", "thing", "report"), expected, strict=True))
    heads = load_file(run.output_dir / "model/heads.safetensors")
    assert {name: tuple(value.shape) for name, value in heads.items()} == {
        "heads.0.weight": (3, 32),
        "heads.0.bias": (3,),
    }


def test_loss_is_the_weighted_sum_of_the_levels_means(chains, make_train_run):
    losses = []
    for factor in (1, 2):
        levels = [{**level, "weight": factor * level.get("weight", 1.0)} for level in LEVELS]
        run = make_train_run(**config_of(chains, num_steps=1, levels=levels))
        run.run_here()
        losses += run.losses()
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-6)


def test_heads_predict_classes_in_half_precision(chains, make_train_run, monkeypatch):
    """On a CPU, as they would be on a GPU."""
    monkeypatch.setattr(stage, "evaluation_dtype", lambda rank_device, _: rank_device.dtype)
    settings = {"manifest": rows_of(chains), "max_new_tokens": 2}
    changes = {"num_steps": 1, "precision": "bf16", "evaluate": settings}
    result = make_train_run(**config_of(chains, **changes)).run_here()
    assert result["evaluation"]["levels"].keys() == {"colour", "thing", "report"}
