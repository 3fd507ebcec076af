"""Held-out rows of a data set: none of their pictures is trained on, whatever the slices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.consolidate.stage import run
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.preprocess.part import PartPaths
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import make_context, run_consolidate, run_preprocess
from tests.pipeline.consolidate.conftest import files_of
from tests.pipeline.consolidate.shared_pictures import SHARE, Rows, random_rows, write_rows

Make = Callable[..., tuple[dict[str, Any], Path]]


def held_out_rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "held_out" / "manifest.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def make(tmp_path: Path, processor_dir: Path) -> Make:
    """`preprocess` and `consolidate`; what the last task returned, and the data set."""

    def make_data_set(
        rows: Rows, num_slices: int = 1, num_tasks: int = 1, **config: Any
    ) -> tuple[dict[str, Any], Path]:
        folder = tmp_path / f"{num_slices}-{num_tasks}"
        config = {
            "manifest": str(write_rows(tmp_path / "source", rows)),
            "processor": str(processor_dir),
            "num_threads": 2,
            **config,
        }
        results, parts_dir = run_preprocess(folder / "prep", config, num_slices)
        for result in results:
            left = result["num_samples"] + result["num_rejected"] + result.get("num_held_out", 0)
            assert left == result["num_rows"]
        for task in range(num_tasks):
            result, made = run_consolidate(
                folder / "set", parts_dir, num_slices, task=(task, num_tasks), num_shards=3
            )
        return result, made

    return make_data_set


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_picture_of_a_held_out_row_is_trained_on(make: Make, tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed)
    trees = []
    for num_slices, num_tasks in ((1, 1), (3, 2), (7, 4)):
        result, folder = make(rows, num_slices, num_tasks, held_out={"share": SHARE})
        trees.append(files_of(folder))
    assert trees[0] == trees[1] == trees[2]
    source = tmp_path / "source"
    pictures = [{(source / name).read_bytes() for name in names} for names in rows]
    rejects = [json.loads(line) for line in trees[0]["rejects.jsonl"].splitlines()]
    by_reason: dict[str, set[int]] = {"held_out": set(), "partly_held_out": set()}
    for reject in rejects:
        by_reason[reject["reason"]].add(reject["row"])
    held_out = {row["row"] for row in held_out_rows(folder)}
    trained = set(open_dataset(folder).index.key.tolist())
    assert held_out == by_reason["held_out"]
    assert sorted([*held_out, *trained, *by_reason["partly_held_out"]]) == list(range(60))
    seen = set().union(*(pictures[row] for row in trained))
    unseen = set().union(*(pictures[row] for row in held_out))
    assert unseen
    assert not seen & unseen
    for row in by_reason["partly_held_out"]:
        assert pictures[row] - seen  # at least one of them is held out
    assert result["num_held_out"] == len(held_out)
    assert result["rejects_by_reason"] == {"partly_held_out": len(by_reason["partly_held_out"])}


def test_a_picture_in_two_manifests_is_held_out_of_both(make: Make, tmp_path: Path) -> None:
    rows = random_rows(4)
    _, whole = make(rows, held_out={"share": SHARE})
    lines = (tmp_path / "source" / "rows.jsonl").read_text().splitlines(keepends=True)
    for name, part in (("a", lines[:25]), ("b", lines[25:])):
        (tmp_path / "source" / f"{name}.jsonl").write_text("".join(part))
    paths = [str(tmp_path / "source" / f"{name}.jsonl") for name in "ab"]
    manifests = [{"path": paths[0]}, {"path": paths[1], "repeat": 2}]
    _, mixed = make(rows, 3, 2, held_out={"share": SHARE}, manifest=manifests)
    assert {row["row"] for row in held_out_rows(mixed)} == {
        row["row"] for row in held_out_rows(whole)
    }
    keys = open_dataset(mixed).index.key
    assert set((keys % len(rows)).tolist()) == set(open_dataset(whole).index.key.tolist())
    num_of_b = sum(key >= 25 for key in open_dataset(whole).index.key.tolist())
    assert len(keys) == len(open_dataset(whole)) + num_of_b


def test_share_that_is_removed_leaves_no_held_out_rows(make: Make) -> None:
    rows = random_rows(1)
    _, folder = make(rows)
    without = files_of(folder)
    assert b"held_out" not in without["dataset.json"]
    _, folder = make(rows, held_out={"share": SHARE})
    assert (folder / "held_out" / "pictures.tar").exists()
    _, folder = make(rows)
    assert files_of(folder) == without
    assert not (folder / "held_out").exists()
    assert not list(folder.parents[1].glob("prep/output/parts/*.held_out.*"))


def test_share_without_a_held_out_row_is_refused_unless_rows_are_limited(
    make: Make, tmp_path: Path, processor_dir: Path
) -> None:
    config = {"held_out": {"share": 1e-9}}
    words = r"share is 1e-09, and none of the 2 rows is held out, so .*held_out\.share=NUMBER`"
    with pytest.raises(StageConfigError, match=words):
        make([["0.png"], ["2.png"]], **config)
    manifest = tmp_path / "source" / "rows.jsonl"
    config |= {"manifest": str(manifest), "processor": str(processor_dir)}
    _, parts_dir = run_preprocess(tmp_path / "few" / "prep", config, limit=1)
    parent = ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=1)
    context = make_context(tmp_path / "few", stage="consolidate", limit=1, parents=(parent,))
    assert run({}, context)["num_held_out"] == 0
    held_out = read_dataset_info(context.output_dir).held_out
    assert held_out is not None
    assert held_out.num_rows == 0


def test_damaged_or_missing_held_out_picture_is_named(make: Make) -> None:
    _, folder = make(random_rows(1), held_out={"share": SHARE})
    parts_dir = folder.parents[1] / "prep" / "output"
    pictures = PartPaths(output_dir=parts_dir, slice_index=0).held_out_pictures
    data = bytearray(pictures.read_bytes())
    data[600] ^= 1
    pictures.write_bytes(data)
    with pytest.raises(StageError, match="does not match its checksum; preprocess slice 0 again"):
        run_consolidate(folder.parent, parts_dir)
    pictures.write_bytes(data[:700])
    with pytest.raises(StageError, match=r"held_out\.tar: 700 bytes, expected"):
        run_consolidate(folder.parent, parts_dir)
