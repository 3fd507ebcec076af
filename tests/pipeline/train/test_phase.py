"""Phases that follow each other: what learns in each, what a resume goes on from."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader

from pipeline.train.checkpoints import checkpoint_folders, restoring
from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.checkpoints.lasting_config import describe_changes, lasting_config
from pipeline.train.phase import phases_of
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.models.tiny import write_dataset
from tests.pipeline.train.reporting.test_trackers import curve
from tests.pipeline.train.tiny_runs import tiny_config

PROJECTOR = {"name": "projector", "learn": ["projector"], "num_steps": 3}
LORA = {
    "name": "lora",
    "learn": ["projector", "adapters"],
    "num_steps": 4,
    "optimizer": {"learning_rate": 1e-2},
}
LAST = {"name": "last-layer", "learn": ["*language_model.layers.1.*"], "num_epochs": 2.0}
NUM_STEPS = (3, 4, 2)
"""The last of five samples, twice, in steps of four."""


def config_of(made, **changes):
    values = {
        "num_steps": None,
        "adapters": {"rank": 4, "alpha": 8.0},
        "phases": [PROJECTOR, LORA, LAST],
        "optimizer": {"learning_rate": 3e-3, "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_share": 0.3},
        "sharding": {"unit_min_params": 0},
        "checkpoint": {"every_steps": 1, "every_min": None, "keep_last": 4},
    }
    return tiny_config(made, **{**values, **changes})


def config_for(strategy):
    """`sharding` goes with fsdp2 alone."""
    return {"strategy": strategy, "sharding": {"unit_min_params": 0} if strategy == "fsdp2" else {}}


ALONE, TWO = config_for("single"), {"fingerprint": "two"}


@pytest.fixture(scope="module")
def whole(made, make_train_run):
    """A training that nothing disturbed, with curves, and its result."""
    trackers = {"use": ["tensorboard"], "every_steps": 1}
    run = make_train_run(**config_of(made, trackers=trackers))
    return run, run.run_here(**ALONE)


@pytest.fixture
def again(made, whole, make_train_run):
    """A run with what `whole` left, of which more is to be lost."""
    run = make_train_run(**config_of(made))
    shutil.copytree(whole[0].output_dir / "phases", run.output_dir / "phases")
    run.attempt = 1
    return run


def checkpoints_of(run, phase):
    return list_checkpoints(run.output_dir / "phases" / phase / "checkpoints")


def kept_names(run, phase):
    """Of the model's tensors in the phase's newest checkpoint."""
    _, folder = checkpoints_of(run, phase)[0]
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    return {name.removeprefix("model.") for name in stored if name.startswith("model.")}


def test_each_phase_teaches_what_it_names_and_keeps_what_learned_before(whole):
    run, result = whole
    assert [phase["num_steps"] for phase in result["phases"]] == list(NUM_STEPS)
    assert [phase["first_step"] for phase in result["phases"]] == [0, 3, 7]
    assert result["num_steps"] == 9
    projector = kept_names(run, "0-projector")
    assert all(".merger." in name for name in projector)
    adapters = kept_names(run, "1-lora") - projector
    assert all(".lora_" in name for name in adapters)
    last = kept_names(run, "2-last-layer") - adapters - projector
    assert all(".layers.1." in name for name in last)
    assert all((projector, adapters, last))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_what_was_frozen_as_a_whole_learns_in_half_precision_later(made, make_train_run, precision):
    """Torch looks at what learns in a unit before its first pass alone."""
    run = make_train_run(**config_of(made, phases=[PROJECTOR, LORA], precision=precision))
    result = run.run_here(**config_for("fsdp2"))
    assert [phase["num_steps"] for phase in result["phases"]] == list(NUM_STEPS[:2])


def test_what_is_in_no_phase_stays_bit_for_bit(made, whole):
    before = load_file(made[1] / "model.safetensors")
    after = load_file(whole[0].output_dir / "model/model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    still = {name for name in before if name.startswith("visual.") and ".merger." not in name}
    assert changed.isdisjoint(still)
    assert any(".merger." in name for name in changed)
    assert any("layers.0.self_attn.q_proj" in name for name in changed)  # the adapters of phase 1


def test_steps_go_on_counting_and_each_phase_has_its_own_rate(whole):
    steps = whole[0].steps(attempt=1)
    assert steps["step"].tolist() == list(range(9))
    rates = steps["learning_rate"]
    for first, num_steps, peak in zip((0, 3, 7), NUM_STEPS, (3e-3, 1e-2, 3e-3), strict=True):
        own = rates[first : first + num_steps]
        assert own.max() == pytest.approx(peak)
        assert own[-1] < peak or num_steps == 2


def test_the_change_of_phase_has_a_span_from_step_to_step(whole):
    steps = whole[0].steps(attempt=1)
    spans = whole[0].spans(attempt=1)
    changes = [span for span in spans if span["name"] == "phase_change"]
    for span, first in zip(changes, (3, 7), strict=True):
        end = span["start_unix_s"] + span["duration_s"]
        assert steps["start_unix_s"][first - 1] < span["start_unix_s"] < end
        assert end <= steps["start_unix_s"][first] + 0.01
        step_end = steps["start_unix_s"][first - 1] + steps["step_s"][first - 1]
        assert span["start_unix_s"] <= step_end + 0.01


def test_phases_that_have_ended_keep_their_last_checkpoint_alone(whole):
    assert [step for step, _ in checkpoints_of(whole[0], "0-projector")] == [3]
    assert [step for step, _ in checkpoints_of(whole[0], "1-lora")] == [4]
    assert [step for step, _ in checkpoints_of(whole[0], "2-last-layer")] == [2, 1]


def test_phases_are_the_trainings_that_follow_each_other(made, make_train_run):
    """The second of them begins with the first one's export, and with the next seed."""
    parts = [{"learn": ["projector"], "num_steps": 3}, {"learn": ["language"], "num_steps": 3}]
    named = [{"name": f"part-{number}", **part} for number, part in enumerate(parts)]
    plain = {"adapters": None, **ALONE}
    both = make_train_run(**config_of(made, phases=named))
    both.run_here(**plain)
    first = make_train_run(**config_of(made, phases=[], **parts[0]))
    first.run_here(**plain)
    then = (made[0], first.output_dir / "model")
    second = make_train_run(**config_of(then, phases=[], **parts[1], seed=1))
    second.run_here(**plain)
    assert both.weights() == second.weights()
    assert both.losses() == first.losses() + second.losses()


LAST_STEP = "2-last-layer/checkpoints/step-00000002"
WEIGHTS = "__0_0.distcp"


def damage(run, phase, name=WEIGHTS):
    """Of the phase's newest checkpoint."""
    path = checkpoints_of(run, phase)[0][1] / name
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("lost", "damaged", "step"),
    [
        ([LAST_STEP], {}, 8),
        (["2-last-layer"], {}, 7),
        (["1-lora", "2-last-layer"], {}, 3),
        (["0-projector"], {}, 0),
        ([LAST_STEP], {"0-projector": WEIGHTS}, 8),
        ([LAST_STEP], {"0-projector": ".metadata", "1-lora": WEIGHTS}, 8),
        ([LAST_STEP], {"0-projector": WEIGHTS, "2-last-layer": WEIGHTS}, 7),
        ([LAST_STEP], dict.fromkeys(("0-projector", "1-lora", "2-last-layer"), WEIGHTS), 0),
        ([LAST_STEP], {"0-projector": "checkpoint.json"}, 0),
    ],
)
def test_resume_in_any_phase_is_exact_even_if_earlier_phases_are_damaged(
    again, whole, lost, damaged, step
):
    for name in lost:
        shutil.rmtree(again.output_dir / "phases" / name)
    for phase, name in damaged.items():
        damage(again, phase, name)
    assert again.run_here(**ALONE)["resumed_from_step"] == step
    assert again.weights() == whole[0].weights()


def test_a_late_writer_that_rotates_a_later_phase_loses_no_step(again, whole, monkeypatch):
    for phase in ("0-projector", "1-lora"):
        damage(again, phase)
    newest, damaged_files = (
        again.output_dir / "phases" / LAST_STEP,
        checkpoint_folders.damaged_files,
    )
    later = newest.rename(again.output_dir / "not-yet")

    def rotate(folder, expected):
        if later.exists() and folder.parent == newest.parent:
            later.rename(newest)
            shutil.rmtree(folder)
        return damaged_files(folder, expected)

    monkeypatch.setattr(checkpoint_folders, "damaged_files", rotate)
    assert again.run_here(**ALONE)["resumed_from_step"] == 9
    assert again.weights() == whole[0].weights()


def test_a_writer_that_removes_every_checkpoint_fails_the_attempt(again, whole, monkeypatch):
    damage(again, "0-projector")
    root = again.output_dir / "phases/1-lora/checkpoints"
    listed, newest = iter(range(10, 1000)), restoring._newest

    def always_another(folder, lost):
        return root / f"step-{next(listed):08d}" if folder == root else newest(folder, lost)

    monkeypatch.setattr(restoring, "_newest", always_another)
    with pytest.raises(StageError, match="were removed by another writer"):
        again.run_here(**ALONE)
    assert next(listed) < 100
    monkeypatch.undo()
    assert again.run_here(**ALONE)["resumed_from_step"] == 9
    assert again.weights() == whole[0].weights()


@pytest.mark.slow
def test_two_ranks_pass_over_the_same_damaged_phase(again):
    shutil.rmtree(again.output_dir / "phases" / LAST_STEP)
    damage(again, "0-projector")
    again.config |= config_for("ddp")
    (_, told), _ = ends = again.finish(again.start(2))
    assert [code for code, _ in ends] == [0, 0], told
    assert "has all its weights" in told
    assert [phase["resumed_from_step"] for phase in again.result()["phases"]] == [3, 4, 1]


@pytest.mark.slow
def test_checkpoints_of_other_work_do_not_replace_a_damaged_phase(made, whole, make_train_run):
    other = {**PROJECTOR, "optimizer": {"learning_rate": 1e-4}}
    run = make_train_run(**config_of(made, phases=[other, LORA, LAST]))
    run.run_here(**ALONE)
    weights = run.weights()
    for name in ("1-lora", "2-last-layer"):
        shutil.rmtree(run.output_dir / "phases" / name)
        shutil.copytree(whole[0].output_dir / "phases" / name, run.output_dir / "phases" / name)
    damage(run, "0-projector")
    assert run.run_here(**ALONE)["resumed_from_step"] == 0
    assert run.weights() == weights


def test_a_resume_in_a_later_phase_keeps_the_curves_of_all_steps_before(whole, make_train_run):
    run = make_train_run(**whole[0].config).take(whole[0])
    shutil.rmtree(run.output_dir / "phases" / LAST_STEP)
    assert run.run_here(**ALONE)["resumed_from_step"] == 8
    assert list(curve(run.output_dir)) == list(range(1, 10))


def test_a_later_phase_that_changes_leaves_those_before_it_alone(again):
    kept = checkpoints_of(again, "1-lora")[0][1].stat().st_mtime_ns
    changed = [PROJECTOR, LORA, {**LAST, "optimizer": {"learning_rate": 1e-4}}]
    assert again.run_here(TWO, phases=changed, **ALONE)["resumed_from_step"] == 7
    assert checkpoints_of(again, "1-lora")[0][1].stat().st_mtime_ns == kept
    assert (again.output_dir / "phases/2-last-layer/checkpoints.before-attempt-2").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"adapters": {"rank": 2, "alpha": 8.0, "targets": ["*language_model.*.q_proj"]}},
        {"phases": [PROJECTOR, {**LORA, "num_steps": 2}, LAST]},
    ],
    ids=["other adapters", "another second phase"],
)
def test_a_change_after_a_phase_keeps_it_and_trains_all_later_phases_again(
    made, again, make_train_run, changes
):
    result = again.run_here(TWO, **changes, **ALONE)
    assert [phase["resumed_from_step"] for phase in result["phases"]] == [3, 0, 0]
    assert result["resumed_from_step"] == 3
    fresh = make_train_run(**config_of(made, **changes))
    fresh.run_here(**ALONE)
    assert again.weights() == fresh.weights()


@pytest.mark.slow
def test_weights_that_other_adapters_rename_are_trained_again(made, make_train_run):
    """A checkpoint has them by the names that they have next to adapters."""
    phases = [{**PROJECTOR, "learn": ["language"]}, LORA]
    run = make_train_run(**config_of(made, phases=phases))
    run.run_here(**ALONE)
    adapters = {"rank": 4, "alpha": 8.0, "targets": ["*language_model.*.q_proj"]}
    again = run.run_here(TWO, adapters=adapters, **ALONE)
    assert again["resumed_from_step"] == 0


@pytest.mark.parametrize("strategy", ["fsdp2", pytest.param("ddp", marks=pytest.mark.slow)])
def test_two_ranks_go_through_phases_as_one_does(made, whole, make_train_run, strategy):
    run = make_train_run(**{**config_of(made), **config_for(strategy)})
    result = run.run()
    assert [phase["num_steps"] for phase in result["phases"]] == list(NUM_STEPS)
    assert run.losses() == pytest.approx(whole[0].losses(1), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"phases": [LORA, {**PROJECTOR, "learn": ["projctor"]}]},
            ValueError,
            "phases.1.learn of phase projector has 'projctor', .*; did you mean `projector`",
        ),
        (
            {"phases": [LORA, {**PROJECTOR, "learn": ["projector.*"]}]},
            StageConfigError,
            r"phases.1.learn: 'projector.\*' is not a part",
        ),
        (
            {"adapters": None, "phases": [PROJECTOR, LORA]},
            ValueError,
            "phases.1.learn of phase lora names adapters, and there are none",
        ),
    ],
)
def test_what_no_phase_can_learn_is_refused_before_the_first_step(
    made, make_train_run, changes, error, words
):
    """By the config alone, or by the model."""
    run = make_train_run(**config_of(made, **changes))
    with pytest.raises(error, match=words):
        run.run_here(**ALONE)
    assert not list(run.output_dir.glob("phases/*/checkpoints"))


def test_a_data_set_of_another_processor_is_refused(made, make_train_run, tmp_path):
    other = write_dataset("qwen2_vl", tmp_path)
    phases = [PROJECTOR, {**LORA, "dataset": str(other)}]
    run = make_train_run(**config_of(made, phases=phases))
    with pytest.raises(StageConfigError, match=r"phases.1.dataset: .* made by another processor"):
        run.run_here(**ALONE)


def test_a_phase_reads_a_data_set_of_its_own(made, make_train_run, tmp_path):
    shutil.copytree(made[0], other := tmp_path / "other")
    phases = [PROJECTOR, {**PROJECTOR, "name": "more", "dataset": str(other)}]
    run = make_train_run(**config_of(made, adapters=None, phases=phases))
    result = run.run_here(**ALONE)
    assert result["num_steps"] == 6
    shutil.rmtree(other)
    with pytest.raises(Exception, match=str(other)):
        run.run_here(**ALONE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"phases": [{**PROJECTOR, "num_epochs": 1.0}]}, "num_steps and num_epochs both are given"),
        ({"phases": [{**PROJECTOR, "name": "A b"}]}, "name is 'A b'"),
        (
            {"phases": [{**PROJECTOR, "learn": []}, LORA]},
            "phases.0.learn of phase projector is empty",
        ),
        ({"profile": {"steps": [7, 8]}, "phases": [PROJECTOR, LORA]}, "the training has 7"),
        (
            {"quantize": {"kind": "nf4"}, "phases": [LORA, {**PROJECTOR, "learn": ["language"]}]},
            "phases.1.learn of phase projector names language, and quantize has the language",
        ),
        ({"reader": "webdataset"}, "reader is webdataset and there are phases"),
    ],
)
def test_phases_that_make_no_sense_are_refused(made, changes, words):
    with pytest.raises(ValueError, match=words):
        build_config(TrainConfig, {"device": "cpu", **config_of(made, **changes)})


def test_phases_take_what_they_leave_out_from_the_training(made):
    config = build_config(TrainConfig, config_of(made))
    projector, lora, last = phases_of(config)
    assert (projector.config.optimizer, last.config.optimizer) == (config.optimizer,) * 2
    assert lora.config.optimizer.learning_rate == 1e-2
    assert {phase.config.seed for phase in (projector, lora, last)} == {0, 1, 2}
    assert lora.key("learn") == "phases.1.learn"
    (only,) = phases_of(build_config(TrainConfig, {"num_steps": 1}))
    assert (only.name, only.key("learn")) == ("", "learn")


def test_keys_that_a_phase_leaves_out_of_a_mapping_are_the_trainings_own(made):
    """What it says is its own, null too."""
    phases = [
        {**LORA, "optimizer": {"learning_rate": 1, "grad_clip_norm": None}},
        {
            **PROJECTOR,
            "name": "more",
            "schedule": {"kind": "constant"},
            "batching": {"max_images": 3},
        },
    ]
    optimizer = {"kind": "adamw_8bit", "weight_decay": 0.3, "learning_rate": 3e-3, "beta2": 0.9}
    batching = {"kind": "packed", "max_tokens": 512, "max_images": 2}
    values = config_of(made, phases=phases, optimizer=optimizer, batching=batching)
    first, second = (phase.config for phase in phases_of(build_config(TrainConfig, values)))
    assert (first.optimizer.kind, first.optimizer.weight_decay) == ("adamw_8bit", 0.3)
    assert (first.optimizer.learning_rate, first.optimizer.grad_clip_norm) == (1.0, None)
    assert (second.optimizer.learning_rate, second.optimizer.grad_clip_norm) == (3e-3, 1.0)
    assert (second.schedule.kind, second.schedule.warmup_share) == ("constant", 0.3)
    assert (second.batching.kind, second.batching.max_tokens) == ("packed", 512)
    assert (first.batching.max_images, second.batching.max_images) == (2, 3)


def test_a_phase_without_a_key_restarts_if_the_training_changes_that_key(made):
    """And one that says it itself stays: a checkpoint is compared by these values."""
    own = {**LORA, "name": "own", "optimizer": {"weight_decay": 0.2}}

    def lasting(weight_decay):
        optimizer = {"learning_rate": 3e-3, "weight_decay": weight_decay}
        config = build_config(TrainConfig, config_of(made, phases=[LORA, own], optimizer=optimizer))
        return [lasting_config(phase.config, 1) for phase in phases_of(config)]

    (before, stays), (after, stayed) = lasting(0.1), lasting(0.4)
    assert describe_changes(before, after) == ["optimizer.weight_decay: 0.1 then, 0.4 now"]
    assert stays == stayed


def test_steps_to_profile_are_counted_over_all_phases(made):
    config = build_config(
        TrainConfig, config_of(made, phases=[PROJECTOR, LORA], profile={"steps": [5, 6]})
    )
    assert [phase.config.num_steps for phase in phases_of(config)] == [3, 4]
