"""Saving beside the steps and at once: two real ranks, no room, a kill, and what is left of it."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.train import loop
from pipeline.train.checkpoints import saver
from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.checkpoints.checkpoint_record import read_info
from pipeline.train.checkpoints.restoring import restore
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from slurm_jobs.base.errors import StageError
from tests.contexts import make_context
from tests.pipeline.train.checkpoints import rank_cases
from tests.pipeline.train.checkpoints.folders import Gate
from tests.pipeline.train.conftest import TIMEOUT_S, full_disk, rank_env, reserve_port

BESIDE = {"every_min": None, "every_steps": 3}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """What each case of `rank_cases` found on each of two ranks, and the folder with the rest."""
    folder = tmp_path_factory.mktemp("cases")
    with reserve_port() as reserved:
        port = str(reserved.getsockname()[1])
        script = str(Path(rank_cases.__file__))
        processes = [
            subprocess.Popen(
                [sys.executable, script, str(rank), port, str(folder)],
                env=rank_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in (0, 1)
        ]  # fmt: skip
        told = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    assert processes[1].returncode == -signal.SIGKILL, told[1][1]
    found = [{}, {}]
    for rank, (stdout, _) in enumerate(told):
        for line in map(json.loads, stdout.splitlines()):
            found[rank].setdefault(line.pop("case"), {}).update(line)
    assert set(found[0]) == set(rank_cases.CASES), told[0][1]
    return found, folder


def both(cases, name):
    return [found[name] for found in cases[0]]


def test_a_background_save_holds_the_state_of_its_step_and_not_a_later_one(cases):
    for found in both(cases, "the_copy_is_of_its_step"):
        for step in ("step 3", "step 6"):
            assert not found[step]["ended before"]
            assert found[step]["restored"] == found[step]["wanted"] != found[step]["later"]
        assert found["step 3"]["wanted"] != found["step 6"]["wanted"]


def test_resume_from_a_background_save_equals_uninterrupted_training(cases):
    for found in both(cases, "resume_equals_uninterrupted"):
        assert found["uninterrupted"] == found["beside"] == found["resumed"]


def test_generators_of_every_rank_go_on_where_they_were(cases):
    first, second = both(cases, "generators_of_every_rank")
    assert first["drawn"] == first["again"]
    assert second["drawn"] == second["again"]
    assert not set(first["drawn"]) & set(second["drawn"])


def test_each_rank_restores_its_own_state_and_unsaved_state_is_unchanged(cases):
    own = [{"own": 5.0, "unknown": 3.0}, {"own": 6.0, "unknown": 3.0}]
    assert both(cases, "extra_state") == own


def test_one_save_is_under_way_at_a_time(cases):
    for found in both(cases, "a_second_save_waits_for_the_first"):
        assert found["order"] == ["copied", "wrote 1", "copied", "wrote 2", "wrote 3"]
        assert found["steps"] == [3, 2, 1]


def test_full_disk_on_one_rank_fails_all_and_leaves_no_partial_files(cases):
    for found in both(cases, "no_room_on_one_rank"):
        assert "StageError: " in found["told"]
        assert "step-00000002 cannot be saved: rank 1: [Errno 27] File too large;" in found["told"]
        assert found["left"] == ["step-00000001"]


def test_a_failed_publication_on_rank_0_is_reported_on_all_ranks(cases):
    first, second = both(cases, "not_published")
    assert first == second
    assert "step-00000001 cannot be saved: [Errno 122] Disk quota exceeded" in first["told"]
    assert first["left"] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("dtype", "0.weight ((16, 16) of torch.float32 in the checkpoint, (16, 16) of torch.bf"),
        ("shape", "model.0.weight ((16, 16) of torch.float32 in the checkpoint, (8, 16) of"),
        ("more", "not in the checkpoint: model.3.bias, model.3.weight, optimizer"),
        ("fewer", "not in the model or optimizer: model.2.bias, model.2.weight, opt"),
    ],
)
def test_a_model_that_differs_from_the_saved_one_is_refused_by_name(cases, kind, words):
    for found in both(cases, "of_another_model"):
        assert found[kind].startswith("StageConfigError: ")
        assert words in found[kind]


def test_a_rank_killed_while_it_saves_leaves_the_previous_checkpoint(
    cases,
):
    (first, *_), folder = cases
    killed = first["killed_while_it_saves"]
    assert killed["left"] == [".step-00000006.1.tmp", "step-00000003"]
    with reserve_port() as reserved:
        context = make_context("train", folder, main_port=reserved.getsockname()[1])
        ranks = join_ranks(context, device_type="cpu", timeout_min=0.5)
        try:
            alone, scaler = rank_cases.Cases(ranks, folder), rank_cases.Counter(0.0)
            made = rank_cases.build(seed=5, is_sharded=False)
            restored = restore(alone.checkpoints("killed", made, scaler=scaler))
        finally:
            leave_ranks()
    assert (restored.step, scaler.value) == (3, 7.0)
    assert rank_cases.digest(made) == killed["digest"]
    assert rank_cases.names(folder / "killed") == ["step-00000003"]


def test_a_save_under_way_ends_whole_though_the_attempt_fails_meanwhile(
    make_train_run, monkeypatch
):
    run = make_train_run(checkpoint=BESIDE)
    not_finite, update = loop.not_finite, loop._update
    gate = Gate(monkeypatch)

    def update_and_break(setup, step, *args):
        rate = update(setup, step, *args)
        if step == 3:
            next(setup.model.parallel.bare.parameters()).data.fill_(float("nan"))
        return rate

    def open_and_tell(*args, **options):
        gate.opened.set()
        return not_finite(*args, **options)

    monkeypatch.setattr(loop, "_update", update_and_break)
    monkeypatch.setattr(loop, "not_finite", open_and_tell)
    with pytest.raises(StageError, match="the loss of step"):
        run.run_here()
    assert gate.is_held.is_set()
    assert [step for step, _ in list_checkpoints(run.output_dir / "checkpoints")] == [3]


def test_both_modes_save_and_learn_the_same(make_train_run, plain, caplog):
    """The other one saved in the background."""
    run = make_train_run(checkpoint={**BESIDE, "mode": "sync"})
    run.run_here()
    states = [read_info(each.checkpoint(3)).files["__0_0.distcp"] for each in (run, plain)]
    assert states[0] == states[1]
    assert run.weights() == plain.weights()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("num_bytes", [100, 20_000, 40_000])
def test_checkpoint_without_room_names_the_error_and_leaves_nothing(
    make_train_run, monkeypatch, num_bytes
):
    """In mode sync: the limit is of the whole process, and no step may write its records then."""
    run = make_train_run(checkpoint={**BESIDE, "mode": "sync"})
    save = saver.dcp.save

    def save_without_room(*args, **options):
        with full_disk(num_bytes):
            save(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(saver.dcp, "save", save_without_room)
        words = r"step-00000003 cannot be saved: rank 0: \[Errno 27\] File too large;"
        with pytest.raises(StageError, match=words):
            run.run_here()
    assert list((run.output_dir / "checkpoints").iterdir()) == []
    assert run.run_here()["num_steps"] == 6


def test_checkpoint_that_fails_to_publish_is_named_and_earlier_ones_stay(
    make_train_run, plain, monkeypatch
):
    run = make_train_run(checkpoint=BESIDE).take(plain, forget_after=5)
    names = rank_cases.names(run.output_dir / "checkpoints")

    def publish_over_quota(*_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(saver.checkpoint_folders, "publish_checkpoint", publish_over_quota)
        with pytest.raises(StageError, match=r"step-00000006 cannot be saved: .*quota exceeded"):
            run.run_here()
    assert rank_cases.names(run.output_dir / "checkpoints") == names
    assert run.run_here()["resumed_from_step"] == 5
