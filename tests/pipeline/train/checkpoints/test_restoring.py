"""Restoring where checkpoints are damaged, or another writer is at work."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.train.checkpoints import checkpoint_folders, restoring, training_state
from pipeline.train.checkpoints.checkpoint_folders import keep_newest
from pipeline.train.checkpoints.checkpoint_record import Identity, Work, read_info
from pipeline.train.checkpoints.restoring import Restored, restore
from pipeline.train.checkpoints.training_state import Checkpoints
from slurm_jobs.base.errors import StageConfigError, StageError
from tests.pipeline.train.checkpoints.folders import UNREADABLE_NOW
from tests.pipeline.train.conftest import fail_on

ONE, TWO = {"fingerprint": "one"}, {"fingerprint": "two"}
AGAIN = {"num_again": 1}
OTHER_RATE = {"optimizer": {"learning_rate": 3e-3}}


@pytest.fixture
def taken(make_train_run, plain):
    """What a training of six steps left, to be gone on from."""
    return make_train_run().take(plain)


def test_damaged_checkpoint_falls_back_to_the_one_before(taken, plain, caplog):
    shard = next(taken.checkpoint(6).glob("__0_*"))
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    assert taken.run_here()["resumed_from_step"] == 5
    assert "step-00000006 is unreadable" in caplog.text
    assert taken.weights() == plain.weights()


def test_a_resume_with_another_config_restarts_and_keeps_old_checkpoints(taken, plain, caplog):
    assert taken.run_here(TWO, **OTHER_RATE)["resumed_from_step"] == 0
    assert (
        "step-00000006 is of other work (optimizer.learning_rate: 0.0001 then, 0.003 now); kept as"
    ) in caplog.text
    assert taken.weights() != plain.weights()
    assert list(taken.output_dir.glob("checkpoints.before-attempt-2/step-00000006.*"))
    assert taken.run_here(TWO, **OTHER_RATE)["resumed_from_step"] == 6


def test_attempts_that_continue_each_other_record_the_same_training(taken, plain):
    taken.run_here(ONE, checkpoint={"every_steps": 2})
    taken.run_here(TWO, **OTHER_RATE)
    files = [plain.records(), *(taken.records(attempt=attempt) for attempt in (2, 3))]
    assert [len(file.steps) for file in files] == [6, 0, 6]
    first, went_on, anew = (file.metadata["training"] for file in files)
    assert first == went_on != anew


def test_a_stage_named_in_again_restarts_once(taken, caplog):
    assert taken.run_here(AGAIN)["resumed_from_step"] == 0
    assert "step-00000006 is of other work (a resume ran the stage --again); kept" in caplog.text
    assert taken.run_here(AGAIN)["resumed_from_step"] == 6


def test_a_late_writer_of_former_work_takes_nothing_from_the_new(make_train_run):
    """A checkpoint of the former work, with more steps, appears next to those of the new."""
    run = make_train_run(checkpoint={"every_min": None, "keep_last": 1})
    run.run_here(num_steps=8)
    run.run_here(AGAIN)
    (late,) = run.output_dir.glob("checkpoints.before-attempt-2/step-00000008.*")
    late.rename(run.checkpoint(8))
    assert run.run_here(AGAIN)["resumed_from_step"] == 6
    own = run.checkpoint(6)
    assert keep_newest(own.parent, 1, read_info(own)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [(OTHER_RATE, r"cannot be continued .*learning_rate"), ({"seed": 1}, "seed: 0 then, 1 now")],
)
def test_a_config_that_changed_beneath_the_same_work_is_refused(taken, changes, words):
    with pytest.raises(StageConfigError, match=words):
        taken.run_here(**changes)


@pytest.mark.parametrize("record", ["{", "null"])
def test_last_resort_is_the_first_step(taken, plain, caplog, record):
    taken.forget(1)
    (taken.checkpoint(1) / "checkpoint.json").write_text(record)
    assert taken.run_here()["resumed_from_step"] == 0
    assert "training starts at step 0" in caplog.text
    assert taken.weights() == plain.weights()


@pytest.mark.parametrize(("module", "function", "name"), UNREADABLE_NOW)
def test_after_a_file_system_error_the_same_checkpoint_is_resumed(
    taken, monkeypatch, module, function, name
):
    with monkeypatch.context() as patch:
        fail_on(patch, module, function, name)
        with pytest.raises(StageError, match=rf"step-00000006/{name}: cannot be read now .*Stale"):
            taken.run_here()
    assert taken.run_here()["resumed_from_step"] == 6


@pytest.mark.parametrize("gpu_is_seen", ["at first", "in the end"])
def test_training_continues_where_a_gpu_has_appeared_or_disappeared(
    make_train_run, plain, monkeypatch, gpu_is_seen
):
    """There is no GPU here: the state of its generator is made up."""
    rng_state = training_state.rng_state

    def rng_state_with_gpu(device):
        return {**rng_state(device), "cuda": torch.zeros(16, dtype=torch.uint8)}

    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    if gpu_is_seen == "at first":
        with monkeypatch.context() as patch:
            patch.setattr(training_state, "rng_state", rng_state_with_gpu)
            run.run_here()
        run.forget(3)
    else:
        run.take(plain, forget_after=3)
        monkeypatch.setattr(training_state, "rng_state", rng_state_with_gpu)
    assert run.run_here()["resumed_from_step"] == 3
    assert run.weights() == plain.weights()


def test_checkpoint_whose_checksums_match_is_never_set_aside(taken, monkeypatch):
    names = {path.name for path in taken.checkpoint(6).parent.iterdir()}

    def fail(*_args, **_options):
        raise CheckpointException("load", {})

    monkeypatch.setattr(restoring.dcp, "load", fail)
    with pytest.raises(StageError, match="step-00000006 cannot be loaded, though all its checksum"):
        taken.run_here()
    assert {path.name for path in taken.checkpoint(6).parent.iterdir()} == names


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
    read_info = restoring.read_info

    def lose_the_race(folder):
        if folder.name == "step-00000004":
            shutil.rmtree(folder)
        return read_info(folder)

    monkeypatch.setattr(restoring, "read_info", lose_the_race)
    assert restore(checkpoints_in(tmp_path)) == Restored(step=0, loss=None)
    assert "another writer removed it, trying the newest" in caplog.text
    assert [path.name[:27] for path in tmp_path.iterdir()] == [".unreadable-step-00000002.2"]


def test_checkpoint_published_while_an_older_one_is_read_is_resumed(taken, plain, monkeypatch):
    newest = taken.checkpoint(6).rename(taken.output_dir / "not-yet")
    damaged_files = checkpoint_folders.damaged_files

    def rotate(folder, expected):
        if newest.exists():
            newest.rename(taken.checkpoint(6))
            shutil.rmtree(folder)
        return damaged_files(folder, expected)

    monkeypatch.setattr(checkpoint_folders, "damaged_files", rotate)
    assert taken.run_here()["resumed_from_step"] == 6
    assert taken.weights() == plain.weights()


def test_writer_that_takes_away_all_that_is_read_fails_the_attempt(tmp_path, monkeypatch):
    """It publishes one more each time."""
    (tmp_path / "step-00000001").mkdir()

    def rotate(folder):
        number = int(folder.name.removeprefix("step-"))
        folder.rename(tmp_path / f"step-{number + 1:08d}")
        raise FileNotFoundError

    monkeypatch.setattr(restoring, "read_info", rotate)
    with pytest.raises(StageError, match=r"11 checkpoints in .* another attempt tries again"):
        restore(checkpoints_in(tmp_path))


def test_phase_never_begins_with_weights_that_the_one_before_did_not_load(tmp_path):
    with pytest.raises(StageError, match="the next attempt starts from that phase"):
        restore(checkpoints_in(tmp_path, can_begin=False))
