"""A training evaluates the rows that its data set holds out, unless it names others."""

from __future__ import annotations

import json

import pytest

from pipeline.train.default_evaluation import with_held_out_rows
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.train.conftest import TrainRun


@pytest.fixture(scope="module")
def data_set(demo_data, tmp_path_factory):
    """Data set of the demo's pictures of which a part is held out."""
    folder = tmp_path_factory.mktemp("held_out")
    render_dir = demo_data / "render"
    config = {
        "manifest": f"{render_dir}/train.jsonl",
        "processor": f"{render_dir}/processor",
        "held_out": {"share": 0.2},
    }
    _, parts_dir = run_preprocess(folder / "prep", config, 3)
    return run_consolidate(folder / "set", parts_dir, 3)[1]


@pytest.fixture
def make_run(make_train_run, data_set):
    def make(**evaluate) -> TrainRun:
        config = {"max_new_tokens": 2, "num_answers": 2, **evaluate}
        return make_train_run(dataset=str(data_set), num_steps=2, evaluate=config)

    return make


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_held_out_rows_are_answered_and_their_loss_is_measured(make_run, data_set, demo_data):
    run = make_run(every_steps=1, columns={"text": "answer"})
    result = run.run_here()
    rows = lines_of(data_set / "held_out" / "manifest.jsonl")
    assert 0 < len(rows) < 40
    originals = lines_of(demo_data / "render/train.jsonl")
    answers = [originals[row["row"]]["messages"][-1]["content"][0]["text"] for row in rows]
    generations = lines_of(run.output_dir / "generations.jsonl")
    assert [generation["reference"] for generation in generations] == answers
    assert (result["evaluation"]["num_samples"], result["evaluation"]["num_rejected"]) == (
        len(rows),
        0,
    )
    assert result["held_out"]["num_looks"] == 2


@pytest.mark.parametrize("names_others", [True, False])
def test_other_rows_or_none_are_evaluated_if_the_config_says_this(make_run, heldout, names_others):
    result = make_run(**({"manifest": heldout} if names_others else {"held_out": False})).run_here()
    if names_others:
        assert result["evaluation"]["num_samples"] == 6
    else:
        assert result["evaluation"] is None


def test_data_set_of_another_phase_with_a_smaller_share_is_named(data_set, demo_data, caplog):
    config = TrainConfig(num_steps=1)
    with_held_out_rows(config, [data_set, data_set])
    assert not caplog.messages
    other = demo_data / "consolidate"
    resolved = with_held_out_rows(config, [other, data_set])
    assert resolved.evaluate.manifest == str(data_set / "held_out" / "manifest.jsonl")
    (message,) = caplog.messages
    assert f"if {other} has them, too: it holds out a share of 0, not 0.2" in message


def test_data_set_without_held_out_rows_is_named_before_the_first_step(make_train_run):
    run = make_train_run(evaluate={"every_steps": 1})
    words = (
        r"every_steps is 1, evaluate\.manifest is not given, and .*consolidate holds out no rows"
    )
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
