"""Looks at held-out samples while training goes on: right, alike on all ranks, without a trace."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.models.build import load_model
from pipeline.train import held_out
from pipeline.train.held_out import HELD_OUT_NAME, HeldOutLog, HeldOutResult, lowest, read_results
from pipeline.train.training_data.batches import losses_of, to_device
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import EvaluateConfig, TrainConfig
from tests.pipeline.models.conftest import open_kind
from tests.pipeline.models.tiny import ROWS
from tests.pipeline.train.chain_config import LEVELS
from tests.pipeline.train.reporting.test_trackers import curve
from tests.pipeline.train.strategies.trainer import rank_device_of
from tests.pipeline.train.test_accelerate_stage import FSDP, by_file, make_attempts
from tests.pipeline.train.tiny_runs import rows_of, tiny_config

PHASES = [{"name": "a", "num_steps": 3, "learn": ["projector"]}, {"name": "b", "num_steps": 2}]
SHARDED = {"strategy": "fsdp2", "sharding": {"unit_min_params": 0}}
KEPT = {"every_steps": 2, "every_min": None, "keep_last": 4}


def config_of(made, every=None, **changes):
    """The samples that are learned are those that are looked at, so that answers become right."""
    looks = {} if every is None else {"every_steps": every, "num_answers": 5}
    values = {
        "num_steps": 5,
        "evaluate": {"manifest": rows_of(made), "max_new_tokens": 20, "batch_size": 2, **looks},
    }
    return tiny_config(made, **{**values, **changes})


def run_blind(run):
    """An attempt whose looks a stop interrupts, each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "stop_requested", lambda: True)
        return run.run_here()


@pytest.fixture(scope="module")
def looked(made, make_train_run):
    run = make_train_run(**config_of(made, every=2))
    return run, run.run_here()


@pytest.fixture(scope="module")
def blind(made, make_train_run):
    """The same without any look, and what it left of looks: nothing."""
    run = make_train_run(**config_of(made, every=2, checkpoint=KEPT))
    assert "held_out" not in run_blind(run)
    assert not (run.output_dir / HELD_OUT_NAME).exists()
    return run


def looks_of(run):
    """Of the newest training of that run."""
    trainings = [phase["training"] for phase in run.records().metadata["phases"]]
    return read_results(run.output_dir / HELD_OUT_NAME, trainings)


def steps_of(run):
    return [look.step for look in looks_of(run)]


def test_looks_change_nothing_of_what_is_learned(made, looked, blind, make_train_run):
    run = make_train_run(**config_of(made))
    run.run_here()
    assert looked[0].weights() == run.weights() == blind.weights()
    assert looked[0].losses() == run.losses()


def test_looks_are_taken_when_due_and_after_the_last_step(looked):
    run, result = looked
    assert steps_of(run) == [2, 4, 5]
    assert (run.steps()["evaluation_s"] > 0).tolist() == [False, True, False, True, True]
    assert result["held_out"]["num_looks"] == 3
    assert result["held_out"]["last"]["step"] == 5


def test_the_loss_is_that_of_the_exported_model_sample_by_sample(made, looked):
    kind = open_kind("qwen2_5_vl", *made)
    model = load_model(looked[0].output_dir / "model", kind.facts).eval()
    rank_device = rank_device_of(build_config(TrainConfig, {"device": "cpu", "num_steps": 1}))
    loss, num_tokens = 0.0, 0
    for sample in kind.samples():
        batch = kind.batch(model, [[sample]])
        with torch.no_grad():
            loss += float(losses_of(model, to_device(batch, rank_device, model.layout)).sum())
        num_tokens += batch.num_supervised_tokens
    last = looks_of(looked[0])[-1]
    assert last.num_tokens == num_tokens
    assert last.loss == pytest.approx(loss / num_tokens, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [SHARDED, {"strategy": "ddp"}], ids=["fsdp2", "ddp"])
def test_two_ranks_see_what_one_sees(made, looked, make_train_run, strategy):
    """Among the rows is one without a picture: the ranks' passes are not alike."""
    run = make_train_run(**config_of(made, every=2, **strategy))
    result = run.run()
    assert_seen_alike(looks_of(run), looks_of(looked[0]))
    assert basis_of(run) == basis_of(looked[0])
    assert result["held_out"]["last"]["num_exact"] == result["evaluation"]["num_exact"]


@pytest.mark.slow
def test_two_ranks_see_the_same_under_a_file_of_accelerate_that_shards(
    made, looked, make_train_run, tmp_path
):
    run = make_train_run(**config_of(made, every=2))
    run.attempt = 1
    (result,) = make_attempts(run, [by_file(tmp_path, FSDP)])
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
def test_looks_with_packed_weights_agree_on_two_ranks_and_change_nothing(made, make_train_run):
    """Kernels of a CPU pack 4-bit weights again for a model that does not train."""
    quantized = {"adapters": {"rank": 4, "alpha": 8.0}, "quantize": {}}
    alone = make_train_run(**config_of(made, every=2, **quantized))
    alone.run_here()
    run = make_train_run(**config_of(made, every=2, **quantized, **SHARDED))
    run.run()
    assert_seen_alike(looks_of(run), looks_of(alone))
    plain = make_train_run(**config_of(made, **quantized, **SHARDED))
    plain.run()
    assert plain.weights() == run.weights()


def test_answers_of_the_last_look_are_those_of_the_evaluation(made, make_train_run):
    run = make_train_run(**config_of(made, every=60, num_steps=60))
    result = run.run_here()
    assert result["evaluation"]["num_exact"] == len(ROWS)
    assert result["held_out"]["last"]["num_exact"] == len(ROWS)


def test_each_level_has_its_own_loss(chains, make_train_run):
    run = make_train_run(**config_of(chains, every=3, num_steps=3, levels=LEVELS))
    run.run_here()
    (look,) = looks_of(run)
    assert set(look.level_losses) == {"colour", "thing", "report"}
    weighted = sum(look.level_losses[level["name"]] * level.get("weight", 1) for level in LEVELS)
    assert look.loss == pytest.approx(weighted, rel=1e-6)
    assert look.num_answers == 4


def test_each_manifest_of_a_list_has_its_own_loss(made, looked, make_train_run, tmp_path):
    whole = Path(rows_of(made))
    lines = whole.read_text().splitlines(keepends=True)
    for name, some in (("one", lines[:1]), ("rest", lines[1:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(some))
    manifests = [
        {"path": str(tmp_path / f"{name}.jsonl"), "image_root": str(whole.parent)}
        for name in ("one", "rest")
    ]
    config = config_of(made, every=5)
    run = make_train_run(**{**config, "evaluate": {**config["evaluate"], "manifest": manifests}})
    evaluation = run.run_here()["evaluation"]
    (look,) = looks_of(run)
    assert look.loss == pytest.approx(looks_of(looked[0])[-1].loss, rel=1e-5)
    one, rest = look.manifest_losses["one"], look.manifest_losses["rest"]
    assert min(one, rest) < look.loss < max(one, rest)
    assert evaluation["manifests"]["rest"]["num_samples"] == 3


def test_steps_of_all_phases_are_counted(made, make_train_run):
    run = make_train_run(**config_of(made, every=2, num_steps=None, phases=PHASES))
    run.run_here()
    assert steps_of(run) == [2, 3, 4, 5]


def test_an_attempt_begins_with_the_look_that_was_due_where_it_goes_on(
    looked, blind, make_train_run
):
    run = make_train_run(**blind.config).take(blind, forget_after=2)
    assert run.run_here()["resumed_from_step"] == 2
    assert looks_of(run)[0].loss == looks_of(looked[0])[0].loss
    assert steps_of(run) == [2, 4, 5]
    span = next(span for span in run.spans() if span["name"] == "evaluation")
    assert span["step"] == 2
    assert span["start_unix_s"] + span["duration_s"] <= run.steps()[0]["start_unix_s"]
    assert run.weights() == looked[0].weights()


def test_the_last_look_is_made_up_for_without_a_step_and_once(blind, make_train_run):
    run = make_train_run(**blind.config).take(blind)
    result = run.run_here()
    assert result["resumed_from_step"] == 5
    assert result["held_out"]["last"]["step"] == 5
    before = (run.output_dir / HELD_OUT_NAME).read_bytes()
    run.run_here()
    assert (run.output_dir / HELD_OUT_NAME).read_bytes() == before


@pytest.mark.slow
def test_looks_at_other_samples_are_not_compared(looked, make_train_run):
    run = make_train_run(**looked[0].config).take(looked[0])
    fewer = {**run.config["evaluate"], "num_loss_samples": 2, "num_answers": 2}
    held_out = run.run_here(evaluate=fewer)["held_out"]
    assert (held_out["num_looks"], held_out["last"]["step"]) == (1, 5)
    assert held_out["lowest"] == held_out["last"]
    assert run.run_here()["held_out"]["num_looks"] == 3
    assert len((run.output_dir / HELD_OUT_NAME).read_text().splitlines()) == 4


@pytest.mark.slow
def test_looks_in_a_phase_stay_where_a_later_one_is_changed(made, make_train_run):
    first, second = PHASES
    config = config_of(made, every=2, checkpoint=KEPT, num_steps=None, phases=PHASES)
    run = make_train_run(**config)
    run.run_here({"fingerprint": "one"})
    before = looks_of(run)
    changed = {**second, "optimizer": {"learning_rate": 1e-4}}
    result = run.run_here({"fingerprint": "two"}, phases=[first, changed])
    assert result["resumed_from_step"] == 3
    assert result["held_out"]["num_looks"] == 4
    assert steps_of(run) == [2, 3, 4, 5]
    assert looks_of(run)[:2] == before[:2]
    assert looks_of(run)[3].loss != before[3].loss


@pytest.mark.slow
def test_a_missed_evaluation_of_a_phase_is_made_later_and_keeps_all_curves(made, make_train_run):
    trackers = {"use": ["tensorboard"], "every_steps": 1}
    phases = {"num_steps": None, "phases": PHASES}
    config = config_of(made, every=2, checkpoint=KEPT, trackers=trackers, **phases)
    run = make_train_run(**config)
    run_blind(run)
    run.run_here()
    looks = {look.step: look.loss for look in looks_of(run)}
    assert list(looks) == [3, 5]
    assert curve(run.output_dir, "look/loss") == looks
    assert list(curve(run.output_dir)) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_two_ranks_learn_the_same_if_they_look_before_their_first_step(made, make_train_run):
    run = make_train_run(**config_of(made, every=2, checkpoint=KEPT, **SHARDED))
    every = run.config["evaluate"].pop("every_steps")
    run.run()
    before = run.weights()
    run.forget(2)
    run.config["evaluate"]["every_steps"] = every
    assert run.run()["resumed_from_step"] == 2
    assert steps_of(run) == [2, 4, 5]
    assert run.weights() == before


def test_rows_of_which_none_can_be_learned_fail_before_the_first_step(
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
        (
            {"every_steps": 5, "held_out": False},
            "every_steps is 5, manifest is not given and held_out is false",
        ),
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


LOOK = HeldOutResult(
    step=2, loss=0.5, level_losses={}, num_tokens=8, num_answers=4, num_exact=3, duration_s=0.1
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / HELD_OUT_NAME


def log_at(path, attempt=1, trainings=("t",), basis="b", **options):
    """`trainings`: names, or the steps at which each ends."""
    ends = trainings if isinstance(trainings, dict) else dict.fromkeys(trainings, 6)
    return HeldOutLog(path, attempt=attempt, trainings=ends, basis=basis, **options)


def test_what_a_kill_cut_short_is_left_out_and_spoils_nothing_after_it(path):
    log_at(path).write(LOOK)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    log_at(path, attempt=2).write(LOOK)
    log_at(path, attempt=2, trainings=("other",)).write(LOOK)
    assert read_results(path, {"t"}) == [LOOK]
    assert LOOK.exact_match == 0.75


def test_a_full_disk_fails_no_training(tmp_path, caplog):
    log_at(tmp_path / "nowhere" / "file").write(LOOK)
    assert "cannot be written" in caplog.text


def test_looks_of_the_newest_basis_belong_together(path):
    first, second = log_at(path, basis="a"), log_at(path, attempt=2, basis="b")
    for step in (2, 4):
        first.write(replace(LOOK, step=step))
    assert first.has(4)
    assert not second.has(4)
    second.write(replace(LOOK, step=6))
    assert [look.step for look in read_results(path, {"t"})] == [6]
    assert not second.has(4)
    assert second.has(6)


def test_a_look_adds_no_point_to_the_curve_of_the_final_evaluation(path):
    told = {}
    log_at(path, track=told.__setitem__).write(LOOK)
    assert told == {2: {"look/loss": 0.5, "look/exact_match": 0.75}}


def test_a_loss_that_is_no_number_is_null_and_never_the_lowest(path):
    log = log_at(path)
    levels = {"a": math.nan, "b": 0.5}
    log.write(replace(LOOK, step=1, loss=math.nan, level_losses=levels))
    log.write(replace(LOOK, step=2, loss=math.inf))
    assert lowest(read_results(path, {"t"})) is None
    log.write(replace(LOOK, step=3))
    looks = read_results(path, {"t"})
    assert lowest(looks) == looks[2]
    assert math.isnan(looks[0].loss)
    assert math.isnan(looks[0].level_losses["a"])
    first = path.read_text().splitlines()[0]
    assert "NaN" not in first
    assert json.loads(first)["level_losses"] == {"a": None, "b": 0.5}


def test_looks_in_phases_that_stay_are_kept_where_a_later_phase_changes(path):
    first, changed = {"a": 3, "ab": 6}, {"a": 3, "ab2": 5}
    for step in (2, 3, 4):
        log_at(path, trainings=first).write(replace(LOOK, step=step))
    second = log_at(path, attempt=2, trainings=changed)
    assert [second.has(step) for step in (2, 3, 4)] == [True, True, False]
    second.write(replace(LOOK, step=5))
    assert [look.step for look in read_results(path, changed)] == [2, 3, 5]
    assert [look.step for look in read_results(path, first)] == [2, 3, 4]
