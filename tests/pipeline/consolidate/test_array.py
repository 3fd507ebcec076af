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
from pathlib import Path
from typing import Any

import pytest

from pipeline.consolidate import stage
from pipeline.data.format import read_dataset_info
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.records import ParentStage, record_to_json
from tests.pipeline.build import (
    make_context,
    preprocess_23,
    preprocess_with_3_bad_rows_of_40,
    run_consolidate,
)

ROOT = Path(__file__).parents[3]
NUM_SHARDS = 5


def files_of(folder: Path) -> dict[str, bytes]:
    """The data set without the pieces, which a copy of it does not need."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if not name.startswith("pieces/")}


@pytest.fixture
def parts_dir(tmp_path: Path, processor_dir: Path) -> Path:
    return preprocess_23(tmp_path, processor_dir)


@pytest.fixture
def expected(tmp_path: Path, parts_dir: Path) -> dict[str, bytes]:
    """What one task makes of the parts."""
    _, folder = run_consolidate(tmp_path / "alone", parts_dir, 2, num_shards=NUM_SHARDS)
    assert not (folder / "pieces").exists()
    return files_of(folder)


def run_task(root: Path, parts_dir: Path, index: int, num_tasks: int, **config: Any):
    return run_consolidate(
        root, parts_dir, 2, task=(index, num_tasks), **{"num_shards": NUM_SHARDS, **config}
    )


@pytest.mark.parametrize(("num_tasks", "order"), [(2, [1, 0]), (3, [0, 1, 2]), (8, [*range(8)])])
def test_data_set_is_byte_identical_for_any_number_of_tasks_in_any_order(
    tmp_path: Path,
    parts_dir: Path,
    expected: dict[str, bytes],
    num_tasks: int,
    order: list[int],
) -> None:
    """Eight tasks are more than there are shards: some have none."""
    for index in order:
        assert not (tmp_path / "set" / "output" / "dataset.json").exists()
        result, folder = run_task(tmp_path / "set", parts_dir, index, num_tasks)
        assert ("fingerprint" in result) == (index == order[-1])
    assert files_of(folder) == expected
    assert read_dataset_info(folder).num_samples == 23


def test_results_of_the_tasks_add_up(tmp_path: Path, parts_dir: Path) -> None:
    alone, _ = run_consolidate(tmp_path / "alone", parts_dir, 2, num_shards=NUM_SHARDS)
    results = [run_task(tmp_path / "set", parts_dir, i, 3)[0] for i in range(3)]
    for name in ("num_samples", "num_shards", "num_bytes", "num_tokens", "num_images"):
        assert sum(result[name] for result in results) == alone[name]
    named = [name for result in results for name in result["outputs"]]
    assert len(named) == len(set(named))
    assert set(alone["outputs"]) <= set(named)


@pytest.mark.parametrize("again", [0, 1, 2])
def test_slice_that_is_done_again_leaves_the_same_data_set(
    tmp_path: Path, parts_dir: Path, expected: dict[str, bytes], again: int
) -> None:
    for index in range(3):
        _, folder = run_task(tmp_path / "set", parts_dir, index, 3)
    damaged = sorted((folder / "shards").iterdir())[-1 if again == 2 else 2 * again]
    damaged.unlink()
    run_task(tmp_path / "set", parts_dir, again, 3)
    assert files_of(folder) == expected


def test_pieces_of_another_dealing_do_not_count_and_leave_nothing(
    tmp_path: Path, parts_dir: Path, expected: dict[str, bytes]
) -> None:
    for index in range(3):
        run_task(tmp_path / "set", parts_dir, index, 3, num_shards=9, seed=4)
    folder = tmp_path / "set" / "output"
    (folder / "shards" / ".shard-000008.tar.0123456789ab.tmp").write_bytes(b"of a killed attempt")
    (folder / "pieces" / "work-00007").mkdir()
    for index in (2, 0):
        run_task(tmp_path / "set", parts_dir, index, 3)
        assert not (folder / "dataset.json").exists()
    run_task(tmp_path / "set", parts_dir, 1, 3)
    assert files_of(folder) == expected
    assert not (folder / "pieces" / "work-00007").exists()


def test_shards_that_another_dealing_wrote_over_are_proved_by_no_earlier_piece(
    tmp_path: Path, parts_dir: Path, expected: dict[str, bytes]
) -> None:
    for index in range(2):
        run_task(tmp_path / "set", parts_dir, index, 2)
    run_task(tmp_path / "set", parts_dir, 0, 2, num_shards=9)
    _, folder = run_task(tmp_path / "set", parts_dir, 0, 2)
    assert not (folder / "dataset.json").exists()
    run_task(tmp_path / "set", parts_dir, 1, 2)
    assert files_of(folder) == expected


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1)])
def test_another_number_of_tasks_begins_anew(
    tmp_path: Path, parts_dir: Path, expected: dict[str, bytes], before: int, after: int
) -> None:
    for index in range(before):
        run_task(tmp_path / "set", parts_dir, index, before)
    for index in range(after):
        _, folder = run_task(tmp_path / "set", parts_dir, index, after)
        assert (folder / "dataset.json").exists() == (index == after - 1)
    assert files_of(folder) == expected
    pieces = {p.name for p in (folder / "pieces").glob("*")}
    assert pieces == {
        f"piece-{i:05d}-of-{after:05d}.{suffix}"
        for i in range(after)
        for suffix in ("json", "npy")
        if after > 1
    }


def test_parts_that_changed_make_the_pieces_before_void(
    tmp_path: Path, processor_dir: Path, parts_dir: Path
) -> None:
    run_task(tmp_path / "set", parts_dir, 0, 2)
    manifest = tmp_path / "source" / "train.csv"
    manifest.write_text(manifest.read_text().replace("blue ", "azure "))
    from pipeline.preprocess.stage import run

    config = {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 1}
    for index in range(2):
        run(config, make_context(tmp_path / "prep", slice_index=index, num_slices=2))
    _, folder = run_task(tmp_path / "set", parts_dir, 1, 2)
    assert not (folder / "dataset.json").exists()
    run_task(tmp_path / "set", parts_dir, 0, 2)
    assert read_dataset_info(folder).num_samples == 23


def test_tasks_that_end_at_the_same_time_both_finish_the_same_data_set(
    tmp_path: Path,
    parts_dir: Path,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither looks for the others' pieces before both have written theirs."""
    both, results = threading.Barrier(2, timeout=60), []
    really_read, really_write = stage.read_pieces, stage.ColumnsWriter

    def read_when_both_are_there(*args: Any) -> Any:
        both.wait()
        return really_read(*args)

    def write_when_both_are_there(*args: Any) -> Any:
        both.wait()
        return really_write(*args)

    monkeypatch.setattr(stage, "read_pieces", read_when_both_are_there)
    monkeypatch.setattr(stage, "ColumnsWriter", write_when_both_are_there)
    threads = [
        threading.Thread(
            target=lambda i=i: results.append(run_task(tmp_path / "set", parts_dir, i, 2)[0])
        )
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result["fingerprint"] for result in results] == [results[0]["fingerprint"]] * 2
    assert files_of(tmp_path / "set" / "output") == expected


KILLED = """
import json, os, signal, sys
from pathlib import Path
from pipeline.consolidate import {module}
from pipeline.consolidate.stage import run
from slurm_jobs.shared.records import read_context

def kill(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

really = {module}.{name}
calls = []
def die_at_the_call(*args, **options):
    calls.append(1)
    if len(calls) == {call}:
        kill()
    return really(*args, **options)

{module}.{name} = die_at_the_call
context = read_context(Path(sys.argv[1]))
run(dict(context.config), context)
"""


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("write_shards._write_shard", 2),  # one shard of two is there
        ("parts.cut_runs", 1),  # within a shard
        ("stage.write_piece", 1),  # all shards, no piece
        ("stage.read_pieces", 1),  # the piece, not the data set
        ("stage._copy_processor", 1),
        ("stage.ColumnsWriter", 1),
        ("stage.dataset_info_to_json", 1),  # all but the proof
        ("stage._tidy", 1),  # after the proof
    ],
)
def test_task_that_is_killed_is_done_again_and_the_data_set_is_the_same(
    tmp_path: Path,
    parts_dir: Path,
    expected: dict[str, bytes],
    place: str,
    call: int,
) -> None:
    """The last of three tasks, in a process of its own, meets SIGKILL at that function."""
    for index in (0, 2):
        run_task(tmp_path / "set", parts_dir, index, 3)
    folder = tmp_path / "set" / "output"
    parent = ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=2)
    context = make_context(
        tmp_path / "set",
        stage="consolidate",
        parents=(parent,),
        config={"num_shards": NUM_SHARDS},
        slice_index=1,
        num_slices=3,
    )
    (tmp_path / "context.json").write_text(json.dumps(record_to_json(context)))
    module, _, name = place.partition(".")
    code = KILLED.format(module=module, name=name, call=call)
    command = [sys.executable, "-c", code, str(tmp_path / "context.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (folder / "dataset.json").exists() == (name == "_tidy")
    run_task(tmp_path / "set", parts_dir, 1, 3)
    assert files_of(folder) == expected
    assert {p.name for p in (folder / "pieces").iterdir() if p.name.startswith("work")} == set()


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda p: p.with_suffix(".json").write_text("{"), r"piece-00000-of-00002\.json: damaged"),
        (lambda p: p.unlink(), r"piece-00000-of-00002\.npy: missing"),
        (lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\xff"), r"\.npy: does not match its"),
        (lambda p: p.write_bytes(p.read_bytes()[:-60]), r"\.npy: does not match its checksum"),
        (lambda p: p.write_bytes(p.read_bytes()[:200]), r"\.npy: does not match its checksum"),
        (lambda p: p.write_bytes(b""), r"\.npy: does not match its checksum"),
    ],
)
def test_damaged_piece_is_named_with_the_slice_to_do_again(
    tmp_path: Path, parts_dir: Path, break_it: Callable[[Path], object], words: str
) -> None:
    run_task(tmp_path / "set", parts_dir, 0, 2)
    break_it(tmp_path / "set" / "output" / "pieces" / "piece-00000-of-00002.npy")
    with pytest.raises(StageError, match=words + r".*slice 0 again"):
        run_task(tmp_path / "set", parts_dir, 1, 2)
    assert not (tmp_path / "set" / "output" / "dataset.json").exists()


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
    own = tmp_path / "processor"
    shutil.copytree(processor_dir, own)
    parts_dir = preprocess_23(tmp_path, own)
    (own / "tokenizer_config.json").write_text("{}")
    words = r"the processor changed since preprocess, .* by `slurm-jobs resume .* --again prep`$"
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    assert not (tmp_path / "set" / "output" / "shards").exists()
