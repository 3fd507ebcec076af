"""Saving where there is no room, and what is left of it."""

import contextlib
import errno
import os
import resource

import pytest

from pipeline.training.checkpoint import saving
from slurm_jobs.common.errors import StageError


@contextlib.contextmanager
def longest_file(num_bytes):
    """The file system takes no more bytes of a file: a real limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("num_bytes", [100, 20_000, 40_000])
def test_checkpoint_that_finds_no_room_is_named_with_the_systems_own_word_and_leaves_nothing(
    make_train_run, monkeypatch, num_bytes
):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    save = saving.dcp.save

    def save_without_room(*args, **options):
        with longest_file(num_bytes):
            save(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(saving.dcp, "save", save_without_room)
        with pytest.raises(
            StageError, match=r"step-00000003 cannot be saved: rank 0: \[Errno 27\] File too large;"
        ):
            run.run_here()
    assert list((run.output_dir / "checkpoints").iterdir()) == []
    assert run.run_here()["num_steps"] == 6


def test_checkpoint_that_cannot_be_published_is_named_and_those_before_it_stay(
    make_train_run, monkeypatch
):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    publish = saving.files.publish_checkpoint

    def publish_over_quota(temp_dir, final_dir, info, attempt):
        if info.step == 6:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        publish(temp_dir, final_dir, info, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(saving.files, "publish_checkpoint", publish_over_quota)
        with pytest.raises(StageError, match=r"step-00000006 cannot be saved: .*quota exceeded"):
            run.run_here()
    assert [path.name for path in (run.output_dir / "checkpoints").iterdir()] == ["step-00000003"]
    assert run.run_here()["resumed_from_step"] == 3
