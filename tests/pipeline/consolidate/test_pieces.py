"""Pieces of array tasks: those of another dealing, damaged ones, and slices that are done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.data.disk_format.dataset_info import read_dataset_info
from slurm_jobs.base.errors import StageError
from tests.pipeline.consolidate.conftest import RunTasks, files_of, preprocess_again


@pytest.mark.parametrize("again", [0, 1, 2])
def test_slice_that_is_done_again_leaves_the_same_data_set(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes], again: int
) -> None:
    run_tasks(3, 0, 1, 2)
    damaged = sorted((folder / "shards").iterdir())[-1 if again == 2 else 2 * again]
    damaged.unlink()
    run_tasks(3, again)
    assert files_of(folder) == expected


def test_pieces_of_another_dealing_do_not_count_and_leave_nothing(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes]
) -> None:
    run_tasks(3, 0, 1, 2, num_shards=9, seed=4)
    (folder / "shards" / ".shard-000008.tar.0123456789ab.tmp").write_bytes(b"of a killed attempt")
    (folder / "pieces" / "work-00007").mkdir()
    run_tasks(3, 2, 0)
    assert not (folder / "dataset.json").exists()
    run_tasks(3, 1)
    assert files_of(folder) == expected
    assert not (folder / "pieces" / "work-00007").exists()


def test_shards_that_another_dealing_overwrote_do_not_count_as_done(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes]
) -> None:
    run_tasks(2, 0, 1)
    run_tasks(2, 0, num_shards=9)
    run_tasks(2, 0)
    assert not (folder / "dataset.json").exists()
    run_tasks(2, 1)
    assert files_of(folder) == expected


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1)])
def test_another_number_of_tasks_starts_again(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes], before: int, after: int
) -> None:
    run_tasks(before, *range(before))
    for index in range(after):
        run_tasks(after, index)
        assert (folder / "dataset.json").exists() == (index == after - 1)
    assert files_of(folder) == expected
    pieces = {path.name for path in (folder / "pieces").glob("*")}
    names = [f"piece-{index:05d}-of-{after:05d}" for index in range(after) if after > 1]
    assert pieces == {f"{name}.{suffix}" for name in names for suffix in ("json", "npy")}


def test_parts_that_changed_make_the_pieces_before_void(
    folder: Path, parts_dir: Path, processor_dir: Path, run_tasks: RunTasks
) -> None:
    run_tasks(2, 0)
    preprocess_again(parts_dir, processor_dir, 0, 1, azure=True)
    run_tasks(2, 1)
    assert not (folder / "dataset.json").exists()
    run_tasks(2, 0)
    assert read_dataset_info(folder).num_samples == 23


BAD_CHECKSUM = r"\.npy: does not match its checksum"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda p: p.with_suffix(".json").write_text("{"), r"piece-00000-of-00002\.json: damaged"),
        (lambda p: p.unlink(), r"piece-00000-of-00002\.npy: missing"),
        (lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\xff"), BAD_CHECKSUM),
        *((lambda p, n=n: p.write_bytes(p.read_bytes()[:n]), BAD_CHECKSUM) for n in (-60, 200, 0)),
    ],
)
def test_damaged_piece_is_named_with_the_slice_to_do_again(
    folder: Path, run_tasks: RunTasks, break_it: Callable[[Path], object], words: str
) -> None:
    run_tasks(2, 0)
    break_it(folder / "pieces" / "piece-00000-of-00002.npy")
    with pytest.raises(StageError, match=words + r".*slice 0 again"):
        run_tasks(2, 1)
    assert not (folder / "dataset.json").exists()
