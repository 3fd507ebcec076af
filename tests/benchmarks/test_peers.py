"""What the benchmarks of reading and resuming count by."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import ours, plain
from benchmarks.peers.child import timed
from benchmarks.peers.job import ARRAYS, RAW, Job, Source
from benchmarks.peers.process import PeerFailedError, PeerProcess
from benchmarks.peers.resuming.training import count, in_order
from tests.pipeline.build import (
    run_consolidate,
    run_preprocess,
    write_csv_manifest,
    write_processor,
)


def test_missing_and_repeated_samples_are_counted_apart() -> None:
    assert count([0, 1, 2, 3], 4) == (0, 0)
    assert count([0, 1, 1, 1], 4) == (2, 2)
    assert count([], 4) == (4, 0)


def test_ranks_of_unequal_length_are_put_in_order_step_by_step() -> None:
    ranks = [{"steps": [[0, 1], [4, 5], [8]]}, {"steps": [[2, 3], [6, 7]]}]
    assert in_order(ranks) == list(range(9))


def test_source_gives_back_what_was_written(tmp_path: Path) -> None:
    source = Source(folder=tmp_path, kind=RAW)
    samples = [b"abc", b"", b"defgh"]
    source.write(iter(samples), (1, 2, 3))
    assert list(source.samples()) == samples
    assert source.lengths.tolist() == [3, 0, 5]
    assert source.shape == (1, 2, 3)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_plain_reads_and_copies_every_sample(tmp_path: Path, is_shuffled: bool) -> None:
    for kind, num_workers in ((RAW, 0), (ARRAYS, 2)):
        source = Source(folder=tmp_path / kind, kind=kind)
        source.write((bytes([n] * 12) for n in range(200)), (2, 2, 3))
        (tmp_path / f"plain-{kind}").mkdir()
        plain.build(source, tmp_path / f"plain-{kind}")
        job = Job(kind=kind, is_shuffled=is_shuffled, num_workers=num_workers)
        assert sum(plain.open_pass(tmp_path / f"plain-{kind}", job)()) == 200


def test_our_passes_deliver_whole_batches(tmp_path: Path) -> None:
    config = {
        "manifest": str(write_csv_manifest(tmp_path / "source", 130)),
        "processor": str(write_processor(tmp_path / "processor")),
        "image_format": "raw",
    }
    _, folder = run_consolidate(tmp_path / "set", run_preprocess(tmp_path / "prep", config)[1])
    raw = ours.open_pass(folder, Job(kind=RAW, is_shuffled=True, num_workers=0))
    assert sum(raw()) == 130
    for is_shuffled, num_threads in itertools.product((False, True), (1, 2)):
        job = Job(kind=ARRAYS, is_shuffled=is_shuffled, num_workers=num_threads)
        one_pass = ours.open_pass(folder, job)
        assert [sum(one_pass()) for _ in range(3)] == [128] * 3


def test_time_goes_on_until_it_is_long_enough() -> None:
    found = timed(lambda: iter([2, 3]), at_least_s=0.02)
    assert found["wall_s"] >= 0.02
    assert found["num_samples"] % 5 == 0


def test_peer_that_is_not_there_is_a_reason_and_no_error(tmp_path: Path) -> None:
    with (
        PeerProcess("no_such_peer", tmp_path / "log") as process,
        pytest.raises(PeerFailedError, match=r"no_such_peer exited; see .*log"),
    ):
        process.hello()
    assert "No module named 'benchmarks.peers.no_such_peer'" in (tmp_path / "log").read_text()


def test_peer_answers_and_says_what_it_could_not_do(tmp_path: Path) -> None:
    source = Source(folder=tmp_path / "source", kind=RAW)
    source.write((np.full(50, n, np.uint8).tobytes() for n in range(20)), (1, 1, 3))
    with PeerProcess("files", tmp_path / "log") as process:
        assert process.hello()["package"] == "torch"
        process.ask(build=str(tmp_path / "set"), source=str(source.folder), kind=RAW)
        job = {"kind": RAW, "is_shuffled": False, "num_workers": 0}
        found = process.ask(folder=str(tmp_path / "set"), job=job, at_least_s=0.0)
        assert found["num_samples"] == 20
        with pytest.raises(PeerFailedError, match=r"FileNotFoundError: .*nowhere"):
            process.ask(folder=str(tmp_path / "nowhere"), job=job, at_least_s=0.0)
        assert process.ask(close=True) == {}
