"""A chain of thought from the manifest to the evaluation: text and classes, level by level."""

from __future__ import annotations

import json
import re

import pytest
from safetensors.torch import load_file

from pipeline.train import stage
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.tiny import CHAINS
from tests.pipeline.train.tiny_runs import rows_of, tiny_config

COLOURS = ["red", "green", "blue"]
LEVELS = [
    {"name": "colour", "head": "classes", "classes": COLOURS},
    {"name": "thing"},
    {"name": "report", "weight": 2.0},
]


def config_of(chains, **changes):
    return tiny_config(chains, **{"num_steps": 120, "levels": LEVELS, **changes})


@pytest.mark.parametrize("kind", [pytest.param("shuffled", marks=pytest.mark.slow), "packed"])
def test_two_ranks_learn_all_levels_and_say_them_one_after_the_other(chains, make_train_run, kind):
    batching = {"kind": kind} | ({"max_tokens": 512} if kind == "packed" else {})
    evaluate = {"manifest": rows_of(chains), "max_new_tokens": 30}
    run = make_train_run(**config_of(chains, batching=batching, evaluate=evaluate))
    result = run.run()
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


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (LEVELS[:2], r"sample \d+ has 3 learned answers, but there are 2 levels"),
        (
            [{**LEVELS[0], "classes": ["red", "blue"]}, *LEVELS[1:]],
            r"sample \d+, level colour: the answer 'green' is not one of .*`levels\.0\.classes`",
        ),
    ],
)
def test_sample_that_does_not_fit_the_levels_is_named(chains, make_train_run, levels, words):
    run = make_train_run(**config_of(chains, num_steps=1, levels=levels))
    with pytest.raises(StageConfigError, match=words) as raised:  # no attempt reads another one
        run.run_here()
    assert raised.value.__suppress_context__  # one traceback in the log


def drop_a_turn(row):
    return {**row, "messages": row["messages"][:4]}


def rename_the_colour(row):
    return json.loads(json.dumps(row).replace("green", "purple"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (rename_the_colour, "'purple' is not one of the 3 classes"),
        (drop_a_turn, "2 (learned answers|assistant turns).* 3 levels"),
    ],
)
def test_held_out_rows_that_do_not_fit_the_levels_are_left_out(
    chains, make_train_run, caplog, spoil, words
):
    source = chains[0].parents[1] / "source"
    *rows, last = map(json.loads, (source / "rows.jsonl").read_text().splitlines())
    run = make_train_run(**config_of(chains, num_steps=1))
    manifest = run.root / "rows.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in [*rows, spoil(last)]))
    looks = {"every_steps": 1, "num_answers": 4, "max_new_tokens": 2}
    evaluate = {"manifest": str(manifest), "image_root": str(source), **looks}
    result = run.run_here(evaluate=evaluate)
    assert (result["evaluation"]["num_samples"], result["evaluation"]["num_rejected"]) == (3, 1)
    assert result["held_out"]["last"]["num_answers"] == 3
    said = [r.message for r in caplog.records if "held-out sample left out" in r.message]
    assert len(said) == 2  # for the looks, and for the evaluation
    assert all(re.search(words, message) for message in said)


def test_heads_predict_classes_in_half_precision(chains, make_train_run, monkeypatch):
    """On a CPU, as they would be on a GPU."""
    monkeypatch.setattr(stage, "evaluation_dtype", lambda rank_device, _: rank_device.dtype)
    settings = {"manifest": rows_of(chains), "max_new_tokens": 2}
    changes = {"num_steps": 1, "precision": "bf16", "evaluate": settings}
    result = make_train_run(**config_of(chains, **changes)).run_here()
    assert result["evaluation"]["levels"].keys() == {"colour", "thing", "report"}
