"""Shards of the shared folder that shrink, vanish, go stale or come over a network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.shard_reading import opened_shards
from slurm_jobs.base.errors import StageError
from tests.pipeline.data.shard_reading.conftest import keys_of


@pytest.mark.usefixtures("_network")
def test_shared_shard_cut_short_while_it_is_read_is_an_error_and_no_signal(
    shared: Path,
) -> None:
    dataset = open_dataset(shared)
    expected = keys_of(dataset)
    assert expected == keys_of(dataset)
    path = shared / "shards/shard-000001.tar"
    os.truncate(path, 512)
    with pytest.raises(StageError, match=r"shard-000001\.tar: 512 bytes, expected"):
        keys_of(dataset)


@pytest.mark.usefixtures("_network")
def test_shared_shard_that_vanishes_after_an_error_is_named(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(shared)
    keys_of(dataset)
    shutil.rmtree(shared / "shards")
    keys_of(dataset)  # open files stay readable

    def stale(*_: object) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(opened_shards.os, "pread", stale)
    with pytest.raises(StageError, match=r"shard-\d{6}\.tar: the shard cannot be opened"):
        dataset.sample(0)


@pytest.mark.usefixtures("_network")
def test_a_stale_handle_is_reopened_once(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, really, failures = open_dataset(shared), os.pread, iter([None])

    def stale_once(*arguments: int) -> bytes:
        if next(failures, "none left") is None:
            raise OSError(116, "Stale file handle")
        return really(*arguments)

    monkeypatch.setattr(opened_shards.os, "pread", stale_once)
    assert len(keys_of(dataset)) == 23


@pytest.mark.usefixtures("_network")
def test_short_reads_are_gone_on_with(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, really = keys_of(open_dataset(shared)), os.pread
    monkeypatch.setattr(opened_shards.os, "pread", lambda fd, n, at: really(fd, min(n, 700), at))
    assert keys_of(open_dataset(shared)) == expected


@pytest.mark.usefixtures("_network")
def test_what_comes_over_a_network_is_compared_each_time(shared: Path) -> None:
    dataset = open_dataset(shared)
    assert dataset.sample(0).key == dataset.sample(0).key
    path = shared / "shards" / f"shard-{int(dataset.index.shard[0]):06d}.tar"
    with path.open("r+b") as stream:  # the same file: its handle is open
        stream.seek(int(dataset.index.offset[0]) + 700)
        byte = stream.read(1)[0]
        stream.seek(-1, 1)
        stream.write(bytes([byte ^ 1]))
    with pytest.raises(StageError, match="checksum"):
        dataset.sample(0)
