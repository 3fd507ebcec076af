"""Staging in, with real processes and a real lock; the full disk alone is made up."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

from pipeline import stage_in as module
from pipeline.data import open_dataset
from pipeline.stage_in import stage_in
from slurm_jobs.common.errors import StageError


def _stage_in_of_a_rank(arguments: tuple[Path, Path]) -> tuple[str, bool]:
    result = stage_in(*arguments)
    return str(result.folder), result.copied


def test_four_processes_make_exactly_one_copy(dataset_dir: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.map(_stage_in_of_a_rank, [(dataset_dir, tmp_path / "local")] * 4, 1)
    assert sorted(copied for _, copied in results) == [False, False, False, True]
    assert len({folder for folder, _ in results}) == 1
    staged = open_dataset(Path(results[0][0]))
    assert [staged.sample(n).key for n in range(23)] == [
        open_dataset(dataset_dir).sample(n).key for n in range(23)
    ]


def test_second_attempt_keeps_the_copy(dataset_dir: Path, tmp_path: Path) -> None:
    first, second = (stage_in(dataset_dir, tmp_path) for _ in range(2))
    assert (first.copied, second.copied) == (True, False)
    assert first.folder == second.folder != dataset_dir


@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "missing", "killed while copying"])
def test_damaged_copy_is_healed(dataset_dir: Path, tmp_path: Path, damage: str) -> None:
    folder = stage_in(dataset_dir, tmp_path).folder
    shard = folder / "shards" / "shard-000001.tar"
    data = bytearray(shard.read_bytes())
    if damage == "flipped bit":
        data[700] ^= 1
        shard.write_bytes(data)
    elif damage == "cut short":
        shard.write_bytes(data[:-1])
    else:
        shard.unlink()
    if damage == "killed while copying":
        (folder / "complete.json").unlink()
        (folder / "shards" / ".shard-000001.tar.0123.tmp").write_bytes(data[:100])
    assert stage_in(dataset_dir, tmp_path).copied
    assert shard.read_bytes() == (dataset_dir / "shards" / shard.name).read_bytes()
    assert len(list((folder / "shards").iterdir())) == 3


def test_damaged_source_is_named_with_both_hashes(dataset_dir: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shutil.copytree(dataset_dir, shared)
    shard = shared / "shards" / "shard-000002.tar"
    data = bytearray(shard.read_bytes())
    data[700] ^= 1
    shard.write_bytes(data)
    with pytest.raises(StageError, match=r"shard-000002\.tar: .*xxh3 \w{16}, expected \w{16}"):
        stage_in(shared, tmp_path / "local")
    assert not list((tmp_path / "local").rglob("shard-000002.tar"))


def test_disk_too_small_falls_back_to_the_shared_folder(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.warns(UserWarning, match="1000 bytes free"):
        result = stage_in(dataset_dir, tmp_path)
    assert (result.folder, result.copied) == (dataset_dir, False)
    assert "1000 bytes free" in result.reason


def test_stop_is_heeded_while_copying(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm_jobs.common.errors import StageStoppedError

    monkeypatch.setattr(module, "stop_requested", lambda: True)
    with pytest.raises(StageStoppedError):
        stage_in(dataset_dir, tmp_path)
