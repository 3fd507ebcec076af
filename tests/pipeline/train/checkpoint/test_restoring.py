"""Restoring where checkpoints are damaged, or another writer is at work."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.train import checkpoint, checkpoint_files, checkpoint_state
from pipeline.train.checkpoint import Restored, restore
from pipeline.train.checkpoint_files import Identity, Work, keep_newest, read_info
from pipeline.train.checkpoint_state import Checkpoints
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.timings import read_steps, steps_path
from tests.pipeline.train.conftest import fail_on


def test_damaged_checkpoint_falls_back_to_the_one_before(make_train_run, caplog):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 2})
    run.run_here()
    weights = run.weights()
    newest = run.output_dir / "checkpoints/step-00000006"
    shard = next(newest.glob("__0_*"))
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    result = run.run_here()
    assert result["resumed_from_step"] == 4
    assert "step-00000006 is unreadable" in caplog.text
    assert run.weights() == weights


def test_a_resume_with_another_config_begins_anew_and_keeps_what_was_there(make_train_run, caplog):
    run = make_train_run()
    run.run_here({"fingerprint": "one"})
    first = run.weights()
    rate = {"learning_rate": 3e-3}
    result = run.run_here({"fingerprint": "two"}, optimizer=rate)
    assert result["resumed_from_step"] == 0
    assert (
        "step-00000006 is of other work (optimizer.learning_rate: 0.0001 then, 0.003 now); kept as"
    ) in caplog.text
    assert run.weights() != first
    assert list(run.output_dir.glob("checkpoints.before-attempt-2/step-00000006.*"))
    assert run.run_here({"fingerprint": "two"}, optimizer=rate)["resumed_from_step"] == 6


def test_records_name_the_training_alike_where_one_attempt_may_go_on_from_the_other(
    make_train_run,
):
    run = make_train_run()
    run.run_here({"fingerprint": "one"})
    run.run_here({"fingerprint": "two"}, checkpoint={"every_steps": 1})
    run.run_here({"fingerprint": "three"}, optimizer={"learning_rate": 3e-3})
    files = [read_steps(steps_path(run.timing_dir(attempt), 0)) for attempt in (1, 2, 3)]
    assert [len(file.steps) for file in files] == [6, 0, 6]
    first, went_on, anew = (file.metadata["training"] for file in files)
    assert first == went_on != anew


def test_a_stage_that_is_asked_for_again_begins_anew_once(make_train_run, caplog):
    run = make_train_run()
    run.run_here({"fingerprint": "one"})
    asked = {"fingerprint": "one", "num_again": 1}
    assert run.run_here(asked)["resumed_from_step"] == 0
    assert "step-00000006 is of other work (the stage was asked for again); kept" in caplog.text
    assert run.run_here(asked)["resumed_from_step"] == 6


def test_a_late_writer_of_former_work_takes_nothing_from_the_new(make_train_run):
    """A checkpoint of the former work, with more steps, appears beside those of the new."""
    run = make_train_run(checkpoint={"every_min": None, "keep_last": 1})
    run.run_here({"fingerprint": "one"}, num_steps=8)
    asked = {"fingerprint": "one", "num_again": 1}
    run.run_here(asked)
    (late,) = run.output_dir.glob("checkpoints.before-attempt-2/step-00000008.*")
    late.rename(run.output_dir / "checkpoints/step-00000008")
    assert run.run_here(asked)["resumed_from_step"] == 6
    own = run.output_dir / "checkpoints/step-00000006"
    assert keep_newest(own.parent, 1, read_info(own)) == []


def test_a_config_that_changed_beneath_the_same_work_is_refused(make_train_run):
    run = make_train_run()
    run.run_here({"fingerprint": "one"})
    with pytest.raises(StageConfigError, match=r"cannot be continued .*learning_rate"):
        run.run_here({"fingerprint": "one"}, optimizer={"learning_rate": 3e-3})


@pytest.mark.parametrize("record", ["{", "null"])
def test_last_resort_is_the_first_step(make_train_run, caplog, record):
    run = make_train_run()
    run.run_here()
    weights = run.weights()
    (run.output_dir / "checkpoints/step-00000006/checkpoint.json").write_text(record)
    assert run.run_here()["resumed_from_step"] == 0
    assert "its training starts at step 0" in caplog.text
    assert run.weights() == weights


@pytest.mark.parametrize(
    ("module", "function", "name"),
    [
        (checkpoint_files, "read_json", "checkpoint.json"),
        (checkpoint_files, "hash_file", "__0_0.distcp"),
    ],
)
def test_failing_file_system_fails_the_attempt_and_the_next_goes_on_from_the_same_checkpoint(
    make_train_run, monkeypatch, module, function, name
):
    run = make_train_run(checkpoint={"every_min": None, "keep_last": 1})
    run.run_here()
    with monkeypatch.context() as patch:
        fail_on(patch, module, function, name)
        with pytest.raises(StageError, match=rf"step-00000006/{name}: cannot be read now .*Stale"):
            run.run_here()
    assert run.run_here()["resumed_from_step"] == 6


@pytest.mark.parametrize("gpu_is_seen", ["at first", "in the end"])
def test_training_goes_on_where_a_gpu_is_seen_no_longer_or_for_the_first_time(
    make_train_run, monkeypatch, gpu_is_seen
):
    """There is no GPU here: the state of its generator is made up."""
    rng_state = checkpoint_state.rng_state

    def rng_state_with_gpu(device):
        return {**rng_state(device), "cuda": torch.zeros(16, dtype=torch.uint8)}

    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    with monkeypatch.context() as patch:
        if gpu_is_seen == "at first":
            patch.setattr(checkpoint_state, "rng_state", rng_state_with_gpu)
        run.run_here()
    weights = run.weights()
    shutil.rmtree(run.output_dir / "checkpoints/step-00000006")
    if gpu_is_seen == "in the end":
        monkeypatch.setattr(checkpoint_state, "rng_state", rng_state_with_gpu)
    assert run.run_here()["resumed_from_step"] == 3
    assert run.weights() == weights


def test_checkpoint_whose_checksums_match_is_never_set_aside(make_train_run, monkeypatch):
    run = make_train_run()
    run.run_here()
    names = {path.name for path in (run.output_dir / "checkpoints").iterdir()}

    def fail(*_args, **_options):
        raise CheckpointException("load", {})

    monkeypatch.setattr(checkpoint.dcp, "load", fail)
    with pytest.raises(StageError, match="step-00000006 cannot be loaded, though all its checksum"):
        run.run_here()
    assert {path.name for path in (run.output_dir / "checkpoints").iterdir()} == names


class OneRank:
    """Stands in for the process group: these tests are about files."""

    rank, num_ranks = 0, 1

    def barrier(self):
        pass

    def from_main(self, value):
        return value


def checkpoints_in(root, **changes):
    identity = Identity(lasting_config={}, dataset_fingerprint="", work=Work(), versions={})
    saved = Checkpoints(root=root, attempt=2, ranks=OneRank(), state=None, identity=identity)
    return replace(saved, **changes)


def test_checkpoint_that_another_writer_takes_away_is_passed_over(tmp_path, monkeypatch, caplog):
    for name in ("step-00000002", "step-00000004"):
        (tmp_path / name).mkdir()
    read_info = checkpoint.read_info

    def lose_the_race(folder):
        if folder.name == "step-00000004":
            shutil.rmtree(folder)
        return read_info(folder)

    monkeypatch.setattr(checkpoint, "read_info", lose_the_race)
    assert restore(checkpoints_in(tmp_path)) == Restored(step=0, loss=None)
    assert "another writer took it away, trying the newest" in caplog.text
    assert [path.name[:27] for path in tmp_path.iterdir()] == [".unreadable-step-00000002.2"]


def test_checkpoint_that_a_late_writer_publishes_while_the_one_before_is_read_is_gone_on_from(
    make_train_run, monkeypatch
):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 1, "keep_last": 2})
    run.run_here()
    weights, root = run.weights(), run.output_dir / "checkpoints"
    newest = (root / "step-00000006").rename(run.output_dir / "not-yet")
    damaged_files = checkpoint_files.damaged_files

    def rotate(folder, expected):
        if newest.exists():
            newest.rename(root / "step-00000006")
            shutil.rmtree(folder)
        return damaged_files(folder, expected)

    monkeypatch.setattr(checkpoint_files, "damaged_files", rotate)
    assert run.run_here()["resumed_from_step"] == 6
    assert run.weights() == weights


def test_writer_that_takes_away_all_that_is_read_fails_the_attempt(tmp_path, monkeypatch):
    """It publishes one more each time."""
    (tmp_path / "step-00000001").mkdir()

    def rotate(folder):
        number = int(folder.name.removeprefix("step-"))
        folder.rename(tmp_path / f"step-{number + 1:08d}")
        raise FileNotFoundError

    monkeypatch.setattr(checkpoint, "read_info", rotate)
    with pytest.raises(StageError, match=r"11 checkpoints in .* another attempt tries again"):
        restore(checkpoints_in(tmp_path))


def test_phase_never_begins_with_weights_that_the_one_before_did_not_load(tmp_path):
    with pytest.raises(StageError, match="another attempt starts with that phase"):
        restore(checkpoints_in(tmp_path, can_begin=False))
