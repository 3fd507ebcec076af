"""Samples read by many threads out of files of which few are held open."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipeline.consolidate import part_reader as reader_module
from pipeline.consolidate.part_reader import PartReader, cut_runs, open_reader, read_ahead
from pipeline.preprocess.part import SAMPLE_ROW
from slurm_jobs.base.errors import StageError

NUM_PARTS, NUM_OF_A_PART = 12, 40


class Made(SimpleNamespace):
    """Parts whose tars hold random bytes, and the rows that describe them."""

    parts: Any
    part: np.ndarray
    rows: np.ndarray
    samples: list[bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("parts")
    random = np.random.default_rng(0)
    rows = np.zeros(NUM_PARTS * NUM_OF_A_PART, dtype=SAMPLE_ROW)
    samples, paths = [], []
    for part in range(NUM_PARTS):
        data = [random.bytes(int(random.integers(1, 3000))) for _ in range(NUM_OF_A_PART)]
        paths.append(SimpleNamespace(tar=folder / f"{part}.tar"))
        paths[-1].tar.write_bytes(b"".join(data))
        own = rows[part * NUM_OF_A_PART : (part + 1) * NUM_OF_A_PART]
        own["num_bytes"] = [len(sample) for sample in data]
        own["offset"] = np.cumsum(own["num_bytes"]) - own["num_bytes"]
        own["xxh3"] = [xxhash.xxh3_64_intdigest(sample) for sample in data]
        own["key"] = part * NUM_OF_A_PART + np.arange(NUM_OF_A_PART)
        samples += data
    part = np.repeat(np.arange(NUM_PARTS), NUM_OF_A_PART)
    return Made(parts=SimpleNamespace(paths=paths), part=part, rows=rows, samples=samples)


@pytest.mark.parametrize("max_open", [1, 3, 100])
@pytest.mark.parametrize("num_threads", [1, 16])
def test_samples_come_in_order_however_few_files_are_open(
    made: Made, max_open: int, num_threads: int
) -> None:
    """Files are closed and opened again all the time, while others read: no descriptor is mixed."""
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(made.rows))
        opened = PartReader(parts=made.parts, max_open=max_open)
        read = read_ahead(opened, made.part[order], made.rows[order], num_threads=num_threads)
        assert list(read) == [made.samples[number] for number in order]


def test_file_that_two_threads_open_at_once_stays_open_for_both(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have opened it before either reads; the second read begins when the first has ended."""
    both, first_done = threading.Barrier(2, timeout=60), threading.Event()
    really_open, really_read = os.open, os.pread
    found: dict[str, bytes] = {}

    def open_together(*args: Any) -> int:
        descriptor = really_open(*args)
        both.wait()
        return descriptor

    def read_in_turn(*args: Any) -> bytes:
        if threading.current_thread().name == "second":
            assert first_done.wait(60)
        return really_read(*args)

    monkeypatch.setattr(reader_module.os, "open", open_together)
    monkeypatch.setattr(reader_module.os, "pread", read_in_turn)
    opened = PartReader(parts=made.parts, max_open=4)

    def read(name: str) -> None:
        found[name] = opened.read(0, made.rows[0])
        first_done.set()

    threads = [threading.Thread(target=read, args=[n], name=n) for n in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"first": made.samples[0], "second": made.samples[0]}


def num_open(folder: Path) -> int:
    """How many files in `folder` this process has open."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(link.is_relative_to(folder) for link in links)


def test_all_files_are_closed_in_the_end(made: Made) -> None:
    folder = made.parts.paths[0].tar.parent
    opened = PartReader(parts=made.parts, max_open=100)
    list(read_ahead(opened, made.part, made.rows, num_threads=4))
    assert num_open(folder) == NUM_PARTS
    del opened
    assert num_open(folder) == 0


def test_damaged_sample_is_named_and_ends_the_threads(made: Made, tmp_path: Path) -> None:
    rows = made.rows.copy()
    rows["xxh3"][200] += 1
    num_threads = threading.active_count()
    opened = PartReader(parts=made.parts, max_open=4)
    with pytest.raises(StageError, match=r"5\.tar: sample 000000200 .*preprocess slice 5 again"):
        list(read_ahead(opened, made.part, rows, num_threads=4))
    assert threading.active_count() == num_threads


def test_part_that_cannot_be_read_is_named_with_the_sample(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # names no file

    monkeypatch.setattr(reader_module.os, "pread", fail)
    opened = PartReader(parts=made.parts, max_open=4)
    words = r"5\.tar: sample 000000200 at byte \d+ cannot be read: Input/output error"
    with pytest.raises(StageError, match=words):
        opened.read(5, made.rows[200])


def test_reader_takes_what_the_process_may_open(made: Made) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert open_reader(made.parts).max_open >= 1
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@given(st.lists(st.integers(1, 3 << 20), max_size=60))
def test_runs_cover_all_samples_in_order_and_are_small(sizes: list[int]) -> None:
    runs = list(cut_runs(np.array(sizes, dtype=np.int64)))
    assert [number for run in runs for number in range(run.start, run.stop)] == [*range(len(sizes))]
    for run in runs:
        count = run.stop - run.start
        assert 1 <= count <= 8
        assert count == 1 or sum(sizes[run]) <= 1 << 20
