"""Consolidation by several array tasks: the same data set, whatever happens to single ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.consolidate import finish, stage
from pipeline.data.disk_format.dataset_info import read_dataset_info
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import (
    make_context,
    preprocess_23,
    preprocess_with_3_bad_rows_of_40,
    run_consolidate,
)
from tests.pipeline.consolidate.conftest import files_of, preprocess_again

ROOT = Path(__file__).parents[3]
NUM_SHARDS = 5
RunTasks = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def expected(tmp_path: Path, parts_dir: Path) -> dict[str, bytes]:
    """What one task makes of the parts."""
    _, folder = run_consolidate(tmp_path / "alone", parts_dir, 2, num_shards=NUM_SHARDS)
    assert not (folder / "pieces").exists()
    return files_of(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where `run_tasks` makes the data set."""
    return tmp_path / "set" / "output"


@pytest.fixture
def run_tasks(folder: Path, parts_dir: Path) -> RunTasks:
    def run(num_tasks: int, *indices: int, **config: Any) -> list[dict[str, Any]]:
        config = {"num_shards": NUM_SHARDS, **config}
        tasks = [(index, num_tasks) for index in indices]
        return [run_consolidate(folder.parent, parts_dir, 2, task=t, **config)[0] for t in tasks]

    return run


@pytest.mark.parametrize(("num_tasks", "order"), [(2, [1, 0]), (3, [0, 1, 2]), (8, [*range(8)])])
def test_data_set_is_byte_identical_for_any_number_of_tasks_in_any_order(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes], num_tasks: int, order: list[int]
) -> None:
    """Eight tasks are more than there are shards: some have none."""
    for index in order:
        assert not (folder / "dataset.json").exists()
        (result,) = run_tasks(num_tasks, index)
        assert ("fingerprint" in result) == (index == order[-1])
    assert files_of(folder) == expected
    assert read_dataset_info(folder).num_samples == 23


def test_results_of_the_tasks_add_up(tmp_path: Path, parts_dir: Path, run_tasks: RunTasks) -> None:
    alone, _ = run_consolidate(tmp_path / "alone", parts_dir, 2, num_shards=NUM_SHARDS)
    results = run_tasks(3, 0, 1, 2)
    for name in ("num_samples", "num_shards", "num_bytes", "num_tokens", "num_images"):
        assert sum(result[name] for result in results) == alone[name]
    named = [name for result in results for name in result["outputs"]]
    assert len(named) == len(set(named))
    assert set(alone["outputs"]) <= set(named)


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


def test_tasks_that_end_at_the_same_time_both_finish_the_same_data_set(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither looks for the others' pieces before both have written theirs."""
    both = threading.Barrier(2, timeout=60)

    def when_both_are_there(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (both.wait(), function(*args))[1]

    for module, name in ((stage, "read_pieces"), (finish, "ColumnsWriter")):
        monkeypatch.setattr(module, name, when_both_are_there(getattr(module, name)))
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda index: run_tasks(2, index)[0], range(2)))
    assert results[0]["fingerprint"] == results[1]["fingerprint"]
    assert files_of(folder) == expected


KILLED = """
import json, os, signal, sys
from pathlib import Path
from pipeline.consolidate import {module}
from pipeline.consolidate.stage import run
from slurm_jobs.formats.records.task_context import read_context

really = {module}.{name}
calls = []
def die_at_the_call(*args, **options):
    calls.append(1)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return really(*args, **options)
{module}.{name} = die_at_the_call
context = read_context(Path(sys.argv[1]))
run(dict(context.config), context)
"""


@pytest.mark.parametrize(
    "place",
    [
        "write_shards._write_shard",  # at the second call: one shard of two is there
        "part_reader.cut_runs",  # within a shard
        "stage.write_piece",  # all shards, no piece
        "stage.read_pieces",  # the piece, not the data set
        "finish._copy_processor",
        "finish.ColumnsWriter",
        "finish.dataset_info_to_json",  # all but the proof
        "finish._tidy",  # after the proof
    ],
)
def test_task_that_is_killed_is_done_again_and_the_data_set_is_the_same(
    folder: Path, parts_dir: Path, run_tasks: RunTasks, expected: dict[str, bytes], place: str
) -> None:
    """The last of three tasks, in a process of its own, meets SIGKILL at that function."""
    run_tasks(3, 0, 2)
    parent = ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=2)
    options = {"stage": "consolidate", "parents": (parent,), "config": {"num_shards": NUM_SHARDS}}
    context = make_context(folder.parent, slice_index=1, num_slices=3, **options)
    file = folder.parent / "context.json"
    file.write_text(json.dumps(record_to_json(context)))
    module, _, name = place.partition(".")
    code = KILLED.format(module=module, name=name, call=2 if name == "_write_shard" else 1)
    command = [sys.executable, "-c", code, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (folder / "dataset.json").exists() == (name == "_tidy")
    run_tasks(3, 1)
    assert files_of(folder) == expected
    assert {p.name for p in (folder / "pieces").iterdir() if p.name.startswith("work")} == set()


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


def test_each_task_refuses_too_many_rejects_and_keeps_their_list(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 4)
    for index in range(2):
        with pytest.raises(StageConfigError, match="3 of 40 rows"):
            run_consolidate(tmp_path / "set", parts_dir, 4, task=(index, 2))
    rejects = tmp_path / "set" / "output" / "rejects.jsonl"
    assert len(rejects.read_text().splitlines()) == 3


def test_another_processor_is_refused_before_a_shard_is_written(
    tmp_path: Path, processor_dir: Path
) -> None:
    own = Path(shutil.copytree(processor_dir, tmp_path / "processor"))
    parts_dir = preprocess_23(tmp_path, own)
    (own / "tokenizer_config.json").write_text("{}")
    words = r"the processor changed since preprocess, .* by `slurm-jobs resume .* --again prep`$"
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    assert not (tmp_path / "set" / "output" / "shards").exists()
