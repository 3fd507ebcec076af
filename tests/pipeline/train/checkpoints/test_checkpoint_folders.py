"""Folders of checkpoints: listed, compared, published, kept and set aside."""

import os

import pytest

from pipeline.train.checkpoints import checkpoint_folders, checkpoint_record
from pipeline.train.checkpoints.checkpoint_record import INFO_NAME, FileFacts
from slurm_jobs.base.errors import StageError
from tests.pipeline.train.checkpoints.folders import (
    INFO,
    UNREADABLE_NOW,
    edit_record,
    write_checkpoint,
)
from tests.pipeline.train.conftest import fail_on


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_unfinished_checkpoints_are_never_listed(tmp_path):
    for name in ("step-00000004", ".step-00000006.1.tmp", "step-00000010", ".unreadable-step-1"):
        (tmp_path / name).mkdir()
    assert [step for step, _ in checkpoint_folders.list_checkpoints(tmp_path)] == [10, 4]
    checkpoint_folders.remove_leftovers(tmp_path)
    assert names(tmp_path) == {"step-00000004", "step-00000010", ".unreadable-step-1"}


def test_a_training_keeps_its_newest_checkpoints_and_those_of_others(tmp_path):
    for step in (2, 4, 6):
        write_checkpoint(tmp_path / f"step-{step:08d}", step=step)
    other = checkpoint_record.Work(num_again=1)
    write_checkpoint(tmp_path / "step-00000008", step=8, work=other)
    (tmp_path / "step-00000009").mkdir()  # without its record
    (tmp_path / "step-00000010").touch()
    removed = checkpoint_folders.keep_newest(tmp_path, 1, INFO)
    assert [path.name for path in removed] == ["step-00000004", "step-00000002"]


def test_every_file_is_checked_by_one_rank():
    facts = {str(i): FileFacts(num_bytes=i, xxh3="") for i in range(5)}
    shares = [checkpoint_folders.share_of_files(facts, rank, 2) for rank in (0, 1)]
    assert sorted([*shares[0], *shares[1]]) == sorted(facts)


def test_damage_is_named(tmp_path):
    (tmp_path / "changed").write_bytes(b"abc")
    facts = {"changed": checkpoint_folders.hash_file(tmp_path / "changed")}
    facts |= {name: FileFacts(num_bytes=1, xxh3="") for name in ("gone", "folder", "changed/b")}
    (tmp_path / "changed").write_bytes(b"abd")
    (tmp_path / "folder").mkdir()
    first, *others = checkpoint_folders.damaged_files(tmp_path, facts)
    assert first.startswith("changed: 3 bytes")
    assert others == [
        "gone: No such file or directory",
        "folder: Is a directory",
        "changed/b: Not a directory",
    ]


def publish_over(tmp_path, spoil=lambda folder: None, **changes):
    """Attempt 2 publishes step 4 after attempt 1, whose checkpoint has `changes` or is spoilt."""
    final_dir, temp_dir = tmp_path / "step-00000004", tmp_path / ".step-00000004.2.tmp"
    write_checkpoint(final_dir, content=b"the earlier attempt's", **changes)
    spoil(final_dir)
    written = write_checkpoint(temp_dir, content=b"ours")
    checkpoint_folders.publish_checkpoint(temp_dir, final_dir, written, 2)
    assert not list(tmp_path.glob(".step-*"))
    content = (final_dir / "__0_0.distcp").read_bytes()
    return content, list(tmp_path.glob(".unreadable-step-00000004.2.*"))


def test_an_intact_checkpoint_of_an_earlier_attempt_stays(tmp_path):
    assert publish_over(tmp_path) == (b"the earlier attempt's", [])


@pytest.mark.parametrize(
    ("spoil", "changes"),
    [
        (lambda folder: (folder / "__0_0.distcp").write_bytes(b"The earlier attempt's"), {}),
        (lambda folder: edit_record(folder, loss=9.0), {}),
        (lambda folder: (folder / INFO_NAME).unlink(), {}),
        (lambda folder: None, {"config_fingerprint": "another"}),
        (lambda folder: None, {"dataset_fingerprint": "another"}),
    ],
    ids=["a bit", "its record", "no record", "another config", "another data set"],
)
def test_checkpoint_in_the_way_that_is_of_no_use_is_set_aside(tmp_path, spoil, changes):
    content, aside = publish_over(tmp_path, spoil, **changes)
    assert content == b"ours"
    assert [(folder / "__0_0.distcp").exists() for folder in aside] == [True]


def test_a_step_can_be_set_aside_twice_and_may_already_be_gone(tmp_path):
    final_dir = tmp_path / "step-00000004"
    for _ in range(2):
        write_checkpoint(final_dir)
        assert checkpoint_folders.set_aside(final_dir, 2).is_dir()
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint_folders.set_aside(final_dir, 2) is None


def test_checkpoint_is_published_though_the_one_in_its_way_went_meanwhile(tmp_path, monkeypatch):
    def lose_the_race(folder, _facts):
        folder.rename(tmp_path / ".unreadable-by-another")
        return ["damaged"]

    monkeypatch.setattr(checkpoint_folders, "damaged_files", lose_the_race)
    assert publish_over(tmp_path) == (b"ours", [])


def test_published_files_are_on_disk_before_they_have_their_name(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "temp")
    (tmp_path / "temp" / "model.safetensors").write_bytes(b"written by a library, not synced")
    wanted = {path.stat().st_ino for path in (tmp_path / "temp").iterdir()}
    synced = set()

    def sync(descriptor, really=os.fsync):
        if not (tmp_path / "final").exists():
            synced.add(os.fstat(descriptor).st_ino)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    checkpoint_folders.publish(tmp_path / "temp", tmp_path / "final")
    assert wanted <= synced


@pytest.mark.parametrize(("module", "function", "name"), UNREADABLE_NOW)
def test_failing_file_system_is_no_damage_of_a_checkpoint_in_the_way(
    tmp_path, monkeypatch, module, function, name
):
    temp_dir, final_dir = tmp_path / ".step-00000004.2.tmp", tmp_path / "step-00000004"
    written = write_checkpoint(temp_dir)
    write_checkpoint(final_dir)
    fail_on(monkeypatch, module, function, name)
    with pytest.raises(StageError, match=rf"step-00000004/{name}: cannot be read now .*Stale"):
        checkpoint_folders.publish_checkpoint(temp_dir, final_dir, written, 2)
    assert names(tmp_path) == {"step-00000004", ".step-00000004.2.tmp"}


def test_a_pipe_or_a_device_in_the_place_of_a_file_is_damage(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    facts = {name: FileFacts(num_bytes=1, xxh3="") for name in ("pipe", "device")}
    assert checkpoint_folders.damaged_files(tmp_path, facts) == [
        "pipe: it is a pipe or a device",
        "device: it is a pipe or a device",
    ]
