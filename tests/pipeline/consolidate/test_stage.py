"""The stage `consolidate`, run for real over real parts, by one task or several."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from pipeline import stopping
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import (
    make_context,
    preprocess_23,
    preprocess_rows,
    preprocess_with_3_bad_rows_of_40,
    run_consolidate,
)
from tests.pipeline.consolidate.conftest import NUM_SHARDS, RunTasks, files_of


def test_data_set_is_byte_identical_for_1_4_and_7_slices(
    make_dataset: Callable[..., Path],
) -> None:
    trees = [files_of(make_dataset(23, num_slices=n, num_shards=4)) for n in (1, 4, 7)]
    assert trees[0] == trees[1] == trees[2]
    assert {"dataset.json", "index.arrow", "shards/shard-000003.tar"} <= trees[0].keys()


def test_outputs_of_the_stage_exclude_foreign_files_next_to_the_data_set(
    tmp_path: Path, parts_dir: Path
) -> None:
    """Packs of a training may be removed: `resume` need not make the data set again for them."""
    first, folder = run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=3)
    (folder / "packs").mkdir()
    (folder / "packs" / "exact.arrow").write_bytes(b"packs")
    (folder / "notes.txt").write_text("of a user")
    again, _ = run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=3)
    assert again["outputs"] == first["outputs"]
    assert {"dataset.json", "index.arrow", "rejects.jsonl"} <= again["outputs"].keys()


def test_checksums_in_dataset_json_are_those_of_the_files(dataset_dir: Path) -> None:
    info = read_dataset_info(dataset_dir)
    for shard in info.shards:
        data = (dataset_dir / "shards" / shard.name).read_bytes()
        assert (len(data), xxhash.xxh3_64_hexdigest(data)) == (shard.num_bytes, shard.xxh3)


def test_another_seed_gives_another_order(make_dataset: Callable[..., Path]) -> None:
    orders = [list(open_dataset(make_dataset(23, seed=seed)).index.key) for seed in (1, 2)]
    assert orders[0] != orders[1]


def test_run_again_with_fewer_shards_leaves_no_old_shard(tmp_path: Path, parts_dir: Path) -> None:
    run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=5)
    result, folder = run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=2)
    assert result["num_shards"] == 2
    assert len(list((folder / "shards").iterdir())) == 2


def test_run_again_with_another_processor_leaves_nothing_of_the_first(
    tmp_path: Path, processor_dir: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        shutil.copytree(processor_dir, folder)
    (first / "special_tokens_map.json").write_text("{}")
    run_consolidate(tmp_path / "set", preprocess_23(tmp_path / "1", first), 2)
    left = tmp_path / "set" / "output" / "processor" / ".tokenizer.json.0123456789ab.tmp"
    left.write_bytes(b"of a killed attempt")
    _, folder = run_consolidate(tmp_path / "set", preprocess_23(tmp_path / "2", second), 2)
    names = {path.name for path in (folder / "processor").iterdir()}
    assert names == {path.name for path in second.iterdir()}


def test_rejects_of_all_parts_are_merged_in_order(tmp_path: Path, processor_dir: Path) -> None:
    lines = {2: "gone.png,a", 8: "also_gone.png,b"}
    _, parts_dir = preprocess_rows(tmp_path, processor_dir, 9, 3, lines=lines, max_reject_share=0.5)
    result, folder = run_consolidate(tmp_path / "set", parts_dir, 3)
    rejects = [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]
    assert [reject["row"] for reject in rejects] == [1, 7]
    assert (result["num_samples"], result["num_rejected"]) == (7, 2)


@pytest.mark.parametrize("num_slices", [1, 4, 7, 40])
def test_rejects_of_all_slices_are_judged_together(
    tmp_path: Path, processor_dir: Path, num_slices: int
) -> None:
    """3 of 40 rows are bad: a share of 0.05 allows 2 of them, one of 0.075 allows 3."""

    def make(share: float) -> None:
        parts_dir = preprocess_with_3_bad_rows_of_40(
            tmp_path, processor_dir, num_slices, max_reject_share=share
        )
        run_consolidate(tmp_path / f"set-{share}", parts_dir, num_slices)

    words = r"3 of 40 rows cannot be used \(missing_image 2, bad_row 1\); max_reject_share: 0\.05"
    with pytest.raises(StageConfigError, match=words):
        make(0.05)
    make(0.075)


def test_too_many_rejects_name_share_reasons_lists_and_the_next_command(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 4)
    words = (
        r"train\.csv: 3 of 40 rows cannot be used \(missing_image 2, bad_row 1\); "
        r"max_reject_share: 0\.01 allows 1\. Fix these rows, then .*--again prep.*"
        r"slurm-jobs resume .* "
        r"stages\.consolidate\.config\.max_reject_share=0\.075`.*All rejects: .*rejects\.jsonl"
    )
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 4)
    folder = tmp_path / "set" / "output"
    assert len((folder / "rejects.jsonl").read_text().splitlines()) == 3
    assert not (folder / "dataset.json").exists()


def test_max_reject_share_of_consolidate_applies_to_finished_parts(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 4)
    result, _ = run_consolidate(tmp_path / "set", parts_dir, 4, max_reject_share=0.1)
    assert result["rejects_by_reason"] == {"missing_image": 2, "bad_row": 1}
    assert result["num_samples"] == 37


def test_share_of_consolidate_saves_no_slice_over_the_share_of_preprocess(
    tmp_path: Path, processor_dir: Path
) -> None:
    """3 of 40 rows are bad: 0.025 allows a slice 1 of them, whatever `consolidate` would allow."""
    arguments, share = (tmp_path, processor_dir), {"max_reject_share": 0.025}
    words = r"train\.csv: 3 of 40 .* stages\.preprocess\.config\.max_reject_share=0\.075`"
    with pytest.raises(StageConfigError, match=words):
        preprocess_with_3_bad_rows_of_40(*arguments, 1, **share)
    parts_dir = preprocess_with_3_bad_rows_of_40(*arguments, 40, **share)
    result, _ = run_consolidate(tmp_path / "set", parts_dir, 40, max_reject_share=0.1)
    assert result["num_rejected"] == 3


def test_samples_left_out_as_too_long_are_no_rejects_too_many(
    tmp_path: Path, processor_dir: Path
) -> None:
    limits = {"max_tokens": 53, "max_reject_share": 0.0, "max_too_long_share": 1.0}
    _, parts_dir = preprocess_rows(tmp_path, processor_dir, 14, 2, **limits)
    result, _ = run_consolidate(tmp_path / "set", parts_dir, 2)
    assert result["rejects_by_reason"]["too_long"] == result["num_rejected"] > 0


def test_rows_that_are_too_long_are_judged_over_all_slices(
    tmp_path: Path, processor_dir: Path
) -> None:
    limits = {"max_tokens": 53, "max_too_long_share": 0.2}  # 3 of 14
    (first, second), parts_dir = preprocess_rows(tmp_path, processor_dir, 14, 2, **limits)
    assert (first["num_too_long"], second["num_too_long"]) == (3, 1)
    words = (
        r"4 of 14 rows are too long \(too_long 4\); max_too_long_share: 0\.2 allows 3\. max_tokens "
        r"is 53; the rows over max_tokens have 54 tokens in the median, 5\d at most\. Keep .* by "
        r"max_tokens=5\d \(longer samples\) with `.* stages\.prep\.config\.KEY=VALUE`, or .*"
        r"stages\.consolidate\.config\.max_too_long_share=0\.286`, which keeps all parts"
    )
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    result, _ = run_consolidate(tmp_path / "set", parts_dir, 2, max_too_long_share=0.286)
    assert result["rejects_by_reason"] == {"too_long": 4}


def test_error_names_limit_and_remedy_when_every_row_exceeds_a_limit(
    tmp_path: Path, processor_dir: Path
) -> None:
    limits = {"max_tokens": 3, "max_too_long_share": 1.0}
    _, parts_dir = preprocess_rows(tmp_path, processor_dir, 6, 2, **limits)
    words = (
        r"none of 6 rows became a sample \(images_too_long 6\); max_tokens: 3 leaves out .*"
        r"slurm-jobs resume .* --set stages\.prep\.config\.max_tokens=NUMBER.*All rejects: .*jsonl"
    )
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    kept = (tmp_path / "set" / "output" / "rejects.jsonl").read_text().splitlines()
    assert len(kept) == 6


def test_no_preprocess_stage_before_is_an_error_without_retry(tmp_path: Path) -> None:
    from pipeline.consolidate.stage import run

    with pytest.raises(StageConfigError, match="run: preprocess"):
        run({}, make_context(tmp_path, stage="consolidate"))


@pytest.mark.parametrize(
    ("deadline_unix_s", "error"),
    [
        (None, StageStoppedError("stopped after 0 of 23 samples")),
        (0.0, StageConfigError(r"0 of 23 .* raise resources\.timeout_min, or array\.num_slices$")),
    ],
)
def test_stop_leaves_no_data_set_and_says_whether_another_attempt_helps(
    parts_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    deadline_unix_s: float | None,
    error: Exception,
) -> None:
    monkeypatch.setattr(stopping, "stop_requested", lambda: True)
    folder = parts_dir.parent / "set"
    with pytest.raises(type(error), match=str(error)):
        run_consolidate(folder, parts_dir, 2, deadline_unix_s=deadline_unix_s)
    assert not list((folder / "output").rglob("*.*"))


ROOT = Path(__file__).parents[3]


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


def test_each_task_refuses_too_many_rejects_and_keeps_their_list(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 4)
    for index in range(2):
        with pytest.raises(StageConfigError, match="3 of 40 rows"):
            run_consolidate(tmp_path / "set", parts_dir, 4, task=(index, 2))
    rejects = tmp_path / "set" / "output" / "rejects.jsonl"
    assert len(rejects.read_text().splitlines()) == 3
