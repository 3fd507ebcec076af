"""Taking a node's copy into use, with real processes, locks and small disks."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.stage_in import copier, stage
from pipeline.stage_in.stage import stage_in
from pipeline.stage_in.store import Store
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.formats.configs.training_parts import StagingConfig
from tests.pipeline.stage_in.conftest import BEFORE, BESIDE, shard_sizes


def stage_in_of_a_rank(arguments: tuple[Path, Path]) -> tuple[str, bool, list[str]]:
    with stage_in(*arguments, BEFORE) as staged:
        dataset = open_dataset(arguments[0], staged.folder)
        return str(staged.folder), staged.copied, [dataset.sample(n).key for n in range(23)]


def keys_of(dataset_dir: Path, folder: Path | None = None) -> list[str]:
    dataset = open_dataset(dataset_dir, folder)
    return [dataset.sample(number).key for number in range(23)]


def test_four_processes_make_exactly_one_copy(dataset_dir: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.map(stage_in_of_a_rank, [(dataset_dir, tmp_path / "local")] * 4, 1)
    assert sorted(copied for _, copied, _ in results) == [False, False, False, True]
    assert len({folder for folder, _, _ in results}) == 1
    assert [keys for _, _, keys in results] == [keys_of(dataset_dir)] * 4


def test_ranks_that_do_not_copy_use_the_copy_of_the_one_that_does(
    dataset_dir: Path, tmp_path: Path
) -> None:
    with (
        stage_in(dataset_dir, tmp_path, BEFORE, copies=False) as second,
        stage_in(dataset_dir, tmp_path, BEFORE) as first,
    ):
        assert first.folder == second.folder
        assert (first.copied, second.copied) == (True, False)
        assert first.num_local_bytes == second.num_local_bytes == first.num_bytes


def test_second_attempt_keeps_the_copy(dataset_dir: Path, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
            found.append((staged.folder, staged.copied))
    assert found[0][0] == found[1][0]
    assert [copied for _, copied in found] == [True, False]


@pytest.mark.parametrize("damage", ["cut short", "missing", "killed while copying"])
def test_damaged_copy_is_healed(dataset_dir: Path, tmp_path: Path, damage: str) -> None:
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        folder = staged.folder
    shard = folder / "shards" / "shard-000001.tar"
    data = shard.read_bytes()
    shard.unlink()
    if damage == "cut short":
        shard.write_bytes(data[:-1])
    if damage == "killed while copying":
        (folder / "shards" / ".shard-000001.tar.0123.tmp").write_bytes(data[:100])
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        assert staged.copied
    assert shard.read_bytes() == (dataset_dir / "shards" / shard.name).read_bytes()
    assert len(list((folder / "shards").iterdir())) == 3


def test_copy_of_a_part_is_verified_once_a_boot(dataset_dir: Path, tmp_path: Path) -> None:
    config = replace(BEFORE, max_gb=sum(shard_sizes(dataset_dir)) * 0.8 / 1e9)
    with stage_in(dataset_dir, tmp_path, config) as staged:
        assert staged.reason
    assert staged.folder is not None
    (staged.folder / "boot-id").write_bytes(b"another")
    with stage_in(dataset_dir, tmp_path, config):
        pass
    assert (staged.folder / "boot-id").read_bytes() != b"another"


@pytest.mark.parametrize("boot_id", [b"", b"another"])
@pytest.mark.parametrize("mode", ["before", "beside"])
def test_copy_of_another_boot_is_verified_and_healed(
    dataset_dir: Path, tmp_path: Path, boot_id: bytes, mode: str
) -> None:
    """Nothing is synced, so that the node may have lost what it had not written."""
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        folder = staged.folder
    shard, index = folder / "shards" / "shard-000001.tar", folder / "index.arrow"
    good = shard.read_bytes(), index.read_bytes()
    shard.write_bytes(bytes(len(good[0])))
    index.write_bytes(b"")
    (folder / "boot-id").write_bytes(boot_id)
    for copied in (True, False):
        with stage_in(dataset_dir, tmp_path, StagingConfig(mode=mode)) as staged:
            assert staged.wait(60)
            assert staged.copied is copied
    assert (shard.read_bytes(), index.read_bytes()) == good


def lose_a_column(dataset_dir: Path, folder: Path, column: str) -> None:
    """Pages of the local index that were lost in a crash read as zeros."""
    path = folder / "index.arrow"
    data = path.read_bytes()
    values = getattr(open_dataset(dataset_dir).index, column).tobytes()
    assert data.count(values) == 1
    path.write_bytes(data.replace(values, bytes(len(values))))


def test_the_shared_index_is_read_if_a_damaged_copy_cannot_be_replaced(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        lose_a_column(dataset_dir, staged.folder, "xxh3")

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(copier, "copy_verified", fails)
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        assert "Input/output error" in staged.reason
        assert keys_of(dataset_dir, staged.folder) == keys_of(dataset_dir)


def test_damaged_source_is_named_with_both_hashes(dataset_dir: Path, tmp_path: Path) -> None:
    shared = damage_shard(dataset_dir, tmp_path / "shared")
    with pytest.raises(StageError, match=r"shard-000002\.tar: .*xxh3 \w{16}, expected \w{16}"):
        stage_in(shared, tmp_path / "local", BEFORE)
    assert not list((tmp_path / "local").rglob("shard-000002.tar"))


def damage_shard(dataset_dir: Path, shared: Path) -> Path:
    shutil.copytree(dataset_dir, shared)
    shard = shared / "shards" / "shard-000002.tar"
    data = bytearray(shard.read_bytes())
    data[700] ^= 1
    shard.write_bytes(data)
    return shared


def test_a_damaged_source_ends_a_training_that_runs_during_the_copy(
    dataset_dir: Path, tmp_path: Path
) -> None:
    shared = damage_shard(dataset_dir, tmp_path / "shared")
    with stage_in(shared, tmp_path / "local", BESIDE) as staged:
        dataset = open_dataset(shared, staged.folder, staged.check)
        assert staged.wait(60)
        undamaged = int((dataset.index.shard == 0).argmax())
        with pytest.raises(StageError, match=r"shard-000002\.tar: .*xxh3 \w{16}, expected"):
            dataset.sample(undamaged)


def test_disk_too_small_for_anything_leaves_all_on_the_shared_folder(
    dataset_dir: Path, small_disk: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    with stage_in(dataset_dir, small_disk(64), BEFORE) as staged:
        assert staged.num_local_bytes == 0
        assert keys_of(dataset_dir, staged.folder) == keys_of(dataset_dir)
    assert "room for 0 bytes" in staged.reason
    assert "3 of 3 shards do not fit" in staged.reason
    assert staged.reason in caplog.text


def test_stop_is_heeded_while_copying(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "stop_requested", lambda: True)
    with pytest.raises(StageStoppedError):
        stage_in(dataset_dir, tmp_path, BEFORE)


def test_stop_is_heeded_while_another_process_holds_the_lock(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "stop_requested", lambda: True)
    with (tmp_path / "stage_in.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StageStoppedError):
            stage_in(dataset_dir, tmp_path, BESIDE)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.ENOSPC, errno.ENOLCK])
@pytest.mark.parametrize("config", [BEFORE, BESIDE])
def test_local_disk_that_cannot_be_used_leaves_all_on_the_shared_folder(
    dataset_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    config: StagingConfig,
) -> None:
    """A broken disk is not to be had: its error is made up."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/local/disk")

    monkeypatch.setattr(Store, "take", fail)
    for copies in (True, False):
        with stage_in(dataset_dir, tmp_path, config, copies=copies) as staged:
            assert (staged.folder, staged.copied) == (None, False)
            assert staged.reason == f"/local/disk: {os.strerror(number)}"
            assert keys_of(dataset_dir, staged.folder) == keys_of(dataset_dir)


def test_folder_that_is_a_file_leaves_all_on_the_shared_folder(
    dataset_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "local").touch()
    with stage_in(dataset_dir, tmp_path / "local", BESIDE) as staged:
        assert staged.folder is None
        assert "Not a directory" in staged.reason


def test_only_shards_and_index_are_copied(dataset_dir: Path, tmp_path: Path) -> None:
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        assert {path.name for path in staged.folder.iterdir()} == {
            "shards", "index.arrow", "in-use", "copying", "boot-id",
        }  # fmt: skip
        assert shard_sizes(staged.folder) == shard_sizes(dataset_dir)


def test_off_touches_nothing(dataset_dir: Path, tmp_path: Path) -> None:
    with stage_in(dataset_dir, tmp_path / "local", replace(BESIDE, mode="off")) as staged:
        assert (staged.folder, staged.reason) == (None, "staging.mode is off")
        assert staged.num_bytes > staged.num_local_bytes == 0
    assert not (tmp_path / "local").exists()


def test_everything_is_closed_in_the_end(dataset_dir: Path, tmp_path: Path) -> None:
    def num_open() -> int:
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum(link.is_relative_to(tmp_path) for link in links)

    for config in (BEFORE, BESIDE):
        with stage_in(dataset_dir, tmp_path, config) as staged:
            assert num_open() >= 1
        staged.close()
        assert num_open() == 0
