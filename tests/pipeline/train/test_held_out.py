"""Looks at held-out samples while training goes on: right, alike on all ranks, without a trace."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml

from pipeline.data.dataset import open_dataset
from pipeline.models.build import load_model
from pipeline.models.layouts import load_tokenizer, read_facts
from pipeline.train import held_out
from pipeline.train.batches import losses_of, to_device
from pipeline.train.held_out import HELD_OUT_NAME, read_looks
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import EvaluateConfig, TrainConfig
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.manifest_formats import PROCESSOR_DIR
from slurm_jobs.shared.timings import read_steps, spans_path, steps_path
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.tiny import ROWS, write_chains, write_tiny
from tests.pipeline.train.strategies.trainer import workplace_of
from tests.pipeline.train.test_accelerate_stage import FSDP, make_attempts
from tests.pipeline.train.test_trackers import curve
from tests.pipeline.train.tiny_runs import tiny_config

LEVELS = [
    {"name": "colour", "head": "classes", "classes": ["red", "green", "blue"]},
    {"name": "thing"},
    {"name": "report", "weight": 2.0},
]


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chains")
    return write_chains("smolvlm", folder), write_tiny("smolvlm", folder / "model")


PHASES = [{"name": "a", "num_steps": 3, "learn": ["projector"]}, {"name": "b", "num_steps": 2}]


def config_of(made, every=None, **changes):
    """The samples that are learned are those that are looked at, so that answers become right."""
    source = made[0].parents[1] / "source" / "rows.jsonl"
    looks = {} if every is None else {"every_steps": every, "num_answers": 5}
    values = {
        "num_steps": 5,
        "evaluate": {"manifest": str(source), "max_new_tokens": 20, "batch_size": 2, **looks},
    }
    return tiny_config(made, **{**values, **changes})


@pytest.fixture(scope="module")
def looked(made, make_train_run):
    run = make_train_run(**config_of(made, every=2))
    return run, run.run_here()


def looks_of(run):
    """Of the newest training of that run."""
    phases = read_steps(steps_path(run.timing_dir(), 0)).metadata["phases"]
    trainings = [phase["training"] for phase in phases]
    return read_looks(run.output_dir / HELD_OUT_NAME, trainings)


def test_looks_change_nothing_of_what_is_learned(made, looked, make_train_run):
    plain = make_train_run(**config_of(made))
    plain.run_here()
    assert looked[0].weights() == plain.weights()
    assert looked[0].losses() == plain.losses()


def test_looks_are_taken_when_due_and_after_the_last_step(looked):
    run, result = looked
    assert [look.step for look in looks_of(run)] == [2, 4, 5]
    steps = read_steps(steps_path(run.timing_dir(1), 0)).steps
    assert (steps["evaluation_s"] > 0).tolist() == [False, True, False, True, True]
    assert result["held_out"]["num_looks"] == 3
    assert result["held_out"]["last"]["step"] == 5


def test_the_loss_is_that_of_the_exported_model_sample_by_sample(made, looked):
    dataset = open_dataset(made[0])
    facts = read_facts(dataset.info, load_tokenizer(made[0] / PROCESSOR_DIR))
    kind = Kind(name="", model_dir=made[1], dataset_dir=made[0], dataset=dataset, facts=facts)
    model = load_model(looked[0].output_dir / "model", facts).eval()
    loss, num_tokens = 0.0, 0
    for sample in kind.samples():
        batch = kind.batch(model, [[sample]])
        inputs = to_device(batch, workplace_of(build_cpu_config()), model.layout)
        with torch.no_grad():
            loss += float(losses_of(model, inputs).sum())
        num_tokens += batch.num_supervised_tokens
    last = looks_of(looked[0])[-1]
    assert last.num_tokens == num_tokens
    assert last.loss == pytest.approx(loss / num_tokens, rel=1e-5)


def build_cpu_config():
    return build_config(TrainConfig, {"device": "cpu", "num_steps": 1})


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_two_ranks_see_what_one_sees(made, looked, make_train_run, strategy):
    """Among the rows is one without a picture: the ranks' passes are not alike."""
    sharding = {"sharding": {"unit_min_params": 0}} if strategy == "fsdp2" else {}
    run = make_train_run(**config_of(made, every=2, strategy=strategy, **sharding))
    result = run.run()
    assert_seen_alike(looks_of(run), looks_of(looked[0]))
    assert basis_of(run) == basis_of(looked[0])
    assert result["held_out"]["last"]["num_exact"] == result["evaluation"]["num_exact"]


@pytest.mark.slow
def test_two_ranks_see_the_same_under_a_file_of_accelerate_that_shards(
    made, looked, make_train_run, tmp_path
):
    file = tmp_path / "fsdp.yaml"
    file.write_text(yaml.safe_dump(FSDP))
    by_file = {"strategy": "accelerate", "accelerate": {"config": str(file)}}
    run = make_train_run(**config_of(made, every=2))
    run.attempt = 1
    (result,) = make_attempts(run, [by_file])
    assert result["spread"]["distributed_type"] == "FSDP"
    assert_seen_alike(looks_of(run), looks_of(looked[0]))


def basis_of(run):
    lines = (run.output_dir / HELD_OUT_NAME).read_text().splitlines()
    (basis,) = {json.loads(line)["basis"] for line in lines}
    return basis


def assert_seen_alike(looks, others):
    for mine, other in zip(looks, others, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-4)
        assert (mine.num_tokens, mine.num_answers) == (other.num_tokens, len(ROWS))


@pytest.mark.slow
def test_two_ranks_with_packed_weights_see_what_one_sees_and_learn_as_if_they_had_not_looked(
    made, make_train_run
):
    """Kernels of a CPU pack 4-bit weights anew for a model that does not train."""
    quantized = {"adapters": {"rank": 4, "alpha": 8.0}, "quantize": {}}
    alone = make_train_run(**config_of(made, every=2, **quantized))
    alone.run_here()
    sharded = {**quantized, "strategy": "fsdp2", "sharding": {"unit_min_params": 0}}
    run = make_train_run(**config_of(made, every=2, **sharded))
    run.run()
    assert_seen_alike(looks_of(run), looks_of(alone))
    plain = make_train_run(**config_of(made, **sharded))
    plain.run()
    assert plain.weights() == run.weights()


def test_answers_of_the_last_look_are_those_of_the_evaluation(made, make_train_run):
    run = make_train_run(**config_of(made, every=60, num_steps=60))
    result = run.run_here()
    assert result["evaluation"]["num_exact"] == len(ROWS)
    assert result["held_out"]["last"]["num_exact"] == len(ROWS)


def test_levels_are_told_apart(chains, make_train_run):
    run = make_train_run(**config_of(chains, every=3, num_steps=3, levels=LEVELS))
    run.run_here()
    (look,) = looks_of(run)
    assert set(look.level_losses) == {"colour", "thing", "report"}
    weighted = sum(look.level_losses[level["name"]] * level.get("weight", 1) for level in LEVELS)
    assert look.loss == pytest.approx(weighted, rel=1e-6)
    assert look.num_answers == 4


def test_steps_of_all_phases_are_counted(made, make_train_run):
    run = make_train_run(**config_of(made, every=2, num_steps=None, phases=PHASES))
    run.run_here()
    assert [look.step for look in looks_of(run)] == [2, 3, 4, 5]


def test_a_look_that_a_stop_interrupts_leaves_nothing(made, make_train_run, monkeypatch):
    monkeypatch.setattr(held_out, "stop_requested", lambda: True)
    run = make_train_run(**config_of(made, every=2))
    result = run.run_here()
    assert "held_out" not in result
    assert not (run.output_dir / HELD_OUT_NAME).exists()


def run_blind(run, monkeypatch, **changes):
    """An attempt whose looks a stop interrupts, each of them."""
    with monkeypatch.context() as patch:
        patch.setattr(held_out, "stop_requested", lambda: True)
        return run.run_here(**changes)


def looking_again(made, **changes):
    kept = {"every_steps": 2, "every_min": None, "keep_last": 4}
    return config_of(made, every=2, checkpoint=kept, **changes)


def spans_of(run):
    lines = spans_path(run.timing_dir(), 0).read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_attempt_begins_with_the_look_that_was_due_where_it_goes_on(
    made, looked, make_train_run, monkeypatch
):
    run = make_train_run(**looking_again(made))
    assert "held_out" not in run_blind(run, monkeypatch)
    for step in (4, 5):
        shutil.rmtree(run.output_dir / f"checkpoints/step-0000000{step}")
    result = run.run_here()
    assert result["resumed_from_step"] == 2
    assert looks_of(run)[0].loss == looks_of(looked[0])[0].loss
    assert [look.step for look in looks_of(run)] == [2, 4, 5]
    span = next(span for span in spans_of(run) if span["name"] == "evaluation")
    first = read_steps(steps_path(run.timing_dir(), 0)).steps[0]
    assert span["step"] == 2
    assert span["start_unix_s"] + span["duration_s"] <= first["start_unix_s"]
    assert run.weights() == looked[0].weights()


def test_the_last_look_is_made_up_for_without_a_step_and_once(made, make_train_run, monkeypatch):
    run = make_train_run(**looking_again(made))
    run_blind(run, monkeypatch)
    result = run.run_here()
    assert result["resumed_from_step"] == 5
    assert result["held_out"]["last"]["step"] == 5
    before = (run.output_dir / HELD_OUT_NAME).read_bytes()
    run.run_here()
    assert (run.output_dir / HELD_OUT_NAME).read_bytes() == before


@pytest.mark.slow
def test_looks_at_other_samples_are_not_compared(made, make_train_run):
    run = make_train_run(**looking_again(made))
    run.run_here()
    fewer = {**run.config["evaluate"], "num_loss_samples": 2, "num_answers": 2}
    held_out = run.run_here(evaluate=fewer)["held_out"]
    assert (held_out["num_looks"], held_out["last"]["step"]) == (1, 5)
    assert held_out["lowest"] == held_out["last"]
    assert run.run_here()["held_out"]["num_looks"] == 3
    assert len((run.output_dir / HELD_OUT_NAME).read_text().splitlines()) == 4


@pytest.mark.slow
def test_the_last_look_of_each_phase_is_made_up_for(made, make_train_run, monkeypatch):
    run = make_train_run(**looking_again(made, num_steps=None, phases=PHASES))
    run_blind(run, monkeypatch)
    run.run_here()
    assert [look.step for look in looks_of(run)] == [3, 5]


@pytest.mark.slow
def test_looks_in_a_phase_stay_where_a_later_one_is_changed(made, make_train_run):
    first, second = PHASES
    run = make_train_run(**looking_again(made, num_steps=None, phases=PHASES))
    run.run_here({"fingerprint": "one"})
    before = looks_of(run)
    changed = {**second, "optimizer": {"learning_rate": 1e-4}}
    result = run.run_here({"fingerprint": "two"}, phases=[first, changed])
    assert result["resumed_from_step"] == 3
    assert result["held_out"]["num_looks"] == 4
    assert [look.step for look in looks_of(run)] == [2, 3, 4, 5]
    assert looks_of(run)[:2] == before[:2]
    assert looks_of(run)[3].loss != before[3].loss


@pytest.mark.slow
def test_looks_that_are_made_up_for_are_told_to_trackers_and_erase_no_curve(
    made, make_train_run, monkeypatch
):
    trackers = {"use": ["tensorboard"], "every_steps": 1}
    run = make_train_run(**looking_again(made, num_steps=None, phases=PHASES, trackers=trackers))
    run_blind(run, monkeypatch)
    run.run_here()
    looks = {look.step: look.loss for look in looks_of(run)}
    assert list(looks) == [3, 5]
    assert curve(run.output_dir, "look/loss") == looks
    assert list(curve(run.output_dir)) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_two_ranks_that_look_before_their_first_step_learn_as_if_they_had_not(made, make_train_run):
    sharded = {"strategy": "fsdp2", "sharding": {"unit_min_params": 0}}
    run = make_train_run(**looking_again(made, **sharded))
    every = run.config["evaluate"].pop("every_steps")
    run.run()
    before = run.weights()
    for name in ("model", "checkpoints/step-00000004", "checkpoints/step-00000005"):
        shutil.rmtree(run.output_dir / name)
    run.config["evaluate"]["every_steps"] = every
    assert run.run()["resumed_from_step"] == 2
    assert [look.step for look in looks_of(run)] == [2, 4, 5]
    assert run.weights() == before


def test_rows_of_which_none_can_be_learned_are_refused_before_the_first_step(
    made, make_train_run, tmp_path
):
    rows = tmp_path / "rows.jsonl"
    asked = {"role": "user", "content": [{"type": "text", "text": "What?"}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": " "}]}
    rows.write_text(json.dumps({"messages": [asked, said]}) + "\n")
    evaluate = {"manifest": str(rows), "every_steps": 2}
    run = make_train_run(**config_of(made, evaluate=evaluate))
    with pytest.raises(StageConfigError, match=r"the first row of .* cannot be used; fix it"):
        run.run_here()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"every_steps": 5}, "every_steps is 5 and manifest is not given"),
        (
            {"manifest": "a", "num_loss_samples": 8},
            "num_loss_samples is 8, .* num_answers, which is 16 by default: .* 8 or less",
        ),
        ({"manifest": "a", "num_answers": 65}, r"num_answers is 65: give num_loss_samples \(64\)"),
    ],
)
def test_looks_at_nothing_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        build_config(EvaluateConfig, values)
