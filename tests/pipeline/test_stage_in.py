"""Staging in, with real processes and a real lock; the errors of a disk alone are made up."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
    staged = open_dataset(dataset_dir, Path(results[0][0]))
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


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"null", b"[]", b"{}", b'{"verified_unix_s": ""}']
)
def test_damaged_marker_means_not_verified(
    dataset_dir: Path, tmp_path: Path, content: bytes
) -> None:
    marker = stage_in(dataset_dir, tmp_path).folder / "complete.json"
    marker.write_bytes(content)
    result = stage_in(dataset_dir, tmp_path)
    assert (result.reason, result.copied) == ("", False)
    assert b"verified_unix_s" in marker.read_bytes()


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


def fill_disk(monkeypatch: pytest.MonkeyPatch, *, after_shards: int) -> None:
    """From the next shard but `after_shards` on, whatever is written meets a full disk."""
    write, num_written = module.atomic_writer, 0

    @contextmanager
    def write_until_full(path: Path) -> Iterator[IO[bytes]]:
        nonlocal num_written
        if num_written >= after_shards:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        num_written += 1
        with write(path) as stream:
            yield stream

    def write_json_until_full(path: Path, _value: object) -> None:
        with write_until_full(path):
            pass

    monkeypatch.setattr(module, "atomic_writer", write_until_full)
    monkeypatch.setattr(module, "write_json_atomic", write_json_until_full)


def test_copy_that_another_run_reads_is_used_and_kept_on_a_full_disk(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_first_run = open_dataset(dataset_dir, stage_in(dataset_dir, tmp_path).folder)
    fill_disk(monkeypatch, after_shards=0)
    result = stage_in(dataset_dir, tmp_path)
    assert (result.reason, result.copied) == ("", False)
    keys = {of_the_first_run.sample(number).key for number in range(23)}  # opens every shard
    assert len(keys) == 23


def test_disk_that_fills_while_copying_loses_only_what_this_call_wrote(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stage_in(dataset_dir, tmp_path).folder
    for number in (1, 2):
        (folder / "shards" / f"shard-{number:06d}.tar").unlink()
    fill_disk(monkeypatch, after_shards=1)
    with pytest.warns(UserWarning, match="No space left on device"):
        result = stage_in(dataset_dir, tmp_path)
    assert result.folder == dataset_dir
    assert [path.name for path in (folder / "shards").iterdir()] == ["shard-000000.tar"]


def test_shared_folder_that_may_not_be_read_is_not_blamed_on_the_local_disk(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, which may read everything: the refusal is made up."""
    source = dataset_dir / "shards" / "shard-000001.tar"
    open_path = Path.open

    def refuse(path: Path, *args: object, **options: object) -> IO[bytes]:
        if path == source:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_path(path, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StageError, match=r"shard-000001\.tar: .*cannot be read: Permission denied"):
        stage_in(dataset_dir, tmp_path)


def test_local_disk_that_cannot_be_read_falls_back_to_the_shared_folder(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = stage_in(dataset_dir, tmp_path).folder / "shards" / "shard-000001.tar"
    open_path = Path.open

    def fail(path: Path, *args: object, **options: object) -> IO[bytes]:
        if path == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return open_path(path, *args, **options)

    monkeypatch.setattr(Path, "open", fail)
    with pytest.warns(UserWarning, match=r"shard-000001\.tar: Input/output error"):
        result = stage_in(dataset_dir, tmp_path)
    assert result.folder == dataset_dir


def test_only_the_shards_are_copied(dataset_dir: Path, tmp_path: Path) -> None:
    folder = stage_in(dataset_dir, tmp_path).folder
    assert {path.name for path in folder.iterdir()} == {"shards", "complete.json"}
