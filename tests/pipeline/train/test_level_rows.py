"""Held-out rows with a chain of answers."""

from __future__ import annotations

import json
import re

import pytest

from tests.pipeline.train.chain_config import config_of


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
