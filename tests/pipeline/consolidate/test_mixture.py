"""Data sets of several manifests: exact numbers of copies, whatever the slices and tasks are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import stopping
from pipeline.consolidate.mixture import Mixture
from pipeline.consolidate.parts import PartedManifest
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.tools.verify import verify_dataset
from slurm_jobs.base.errors import StageConfigError, StageDataError, StageStoppedError
from slurm_jobs.formats.configs.proportions import Proportion
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import (
    IMAGE_SIZE,
    make_context,
    run_consolidate,
    run_preprocess,
    write_csv_manifest,
    write_image,
)
from tests.pipeline.consolidate.conftest import files_of
from tests.pipeline.consolidate.test_stage import KILLED, ROOT

NUM_CAPTIONS, NUM_CHARTS, NUM_CHATS = 5, 7, 3
SHARES = {"captions": {"repeat": 2}, "charts": {"num_samples": 4}, "chats": {"repeat": 1.5}}
EXPECTED = {"captions": 10, "charts": 4, "chats": 5}


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 100)), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(1, 60),
)
def test_every_sample_has_as_many_copies_as_promised(
    sizes: list[tuple[int, int]], seed: int, window: int
) -> None:
    manifests = tuple(
        PartedManifest(
            name=str(place),
            path="",
            num_rows=num + place,
            num_samples=num,
            num_bytes=0,
            proportion=Proportion(),
        )
        for place, (num, _) in enumerate(sizes)
    )
    mixture = Mixture(
        num_rows=sum(each.num_rows for each in manifests),
        manifests=manifests,
        counts=tuple(count for _, count in sizes),
        seed=seed,
    )
    numbers = np.random.default_rng(seed).permutation(mixture.num_samples)
    pieces = [
        np.stack(mixture.locate(numbers[start : start + window]))
        for start in range(0, len(numbers), window)
    ]
    samples, copies = np.concatenate(pieces, axis=1)
    assert len({*zip(samples.tolist(), copies.tolist(), strict=True)}) == mixture.num_samples
    num_copies = Counter(samples.tolist())
    first = 0
    for num, count in sizes:
        found = [num_copies[sample] for sample in range(first, first + num)]
        assert sum(found) == count
        assert set(found) <= {count // num, -(-count // num)}
        first += num


@pytest.fixture
def config(tmp_path: Path, processor_dir: Path) -> dict[str, Any]:
    """Three manifests, one with a row that is lost, one with other columns and images."""
    captions = write_csv_manifest(tmp_path / "captions", NUM_CAPTIONS)
    captions.write_text(captions.read_text() + "gone.png,words\n")
    write_image(tmp_path / "chart.png", (9, 9, 9), IMAGE_SIZE)
    (tmp_path / "lists").mkdir()
    charts = [{"image": "chart.png", "answer_text": f"chart {n}"} for n in range(NUM_CHARTS)]
    chats = [
        {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": f"{n}"}]}
        for n in range(NUM_CHATS)
    ]
    for name, rows in (("charts", charts), ("chats", chats)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (tmp_path / "lists" / f"{name}.jsonl").write_text("".join(lines))
    manifests = [
        {"path": str(captions), "name": "captions"},
        {
            "path": str(tmp_path / "lists" / "charts.jsonl"),
            "columns": {"text": "answer_text"},
            "image_root": str(tmp_path),
        },
        {"path": str(tmp_path / "lists" / "chats.jsonl")},
    ]
    for manifest, share in zip(manifests, SHARES.values(), strict=True):
        manifest.update(share)
    return {
        "manifest": manifests,
        "processor": str(processor_dir),
        "num_threads": 2,
        "max_reject_share": 0.2,
    }


MakeMixed = Callable[..., Path]


@pytest.fixture
def make_mixed(tmp_path: Path, config: dict[str, Any]) -> MakeMixed:
    """Preprocess in `num_slices`, and consolidate by `num_tasks`."""

    def make(num_slices: int = 1, num_tasks: int = 1, **options: Any) -> Path:
        folder = tmp_path / f"{num_slices}-{num_tasks}-{len(options)}"
        _, parts_dir = run_preprocess(folder / "prep", config, num_slices)
        for task in range(num_tasks):
            _, made = run_consolidate(
                folder / "set", parts_dir, num_slices, task=(task, num_tasks), **options
            )
        return made

    return make


def names_of(folder: Path) -> Counter[str]:
    dataset = open_dataset(folder)
    return Counter(dataset.sample(n).meta["manifest"] for n in range(len(dataset.index)))


def test_data_set_has_the_promised_samples_for_any_slices_and_tasks(
    make_mixed: MakeMixed,
) -> None:
    trees = [files_of(make_mixed(s, t, num_shards=3)) for s, t in ((1, 1), (4, 1), (7, 3))]
    assert trees[0] == trees[1] == trees[2]
    folder = make_mixed(num_shards=3)
    assert names_of(folder) == EXPECTED
    assert verify_dataset(folder, num_threads=1, report=lambda *_: None)[0] == []
    manifests = json.loads((folder / "dataset.json").read_text())["manifests"]
    assert [each["num_rejected"] for each in manifests] == [1, 0, 0]
    assert [each["num_samples"] for each in manifests] == list(EXPECTED.values())
    assert sum(each["num_tokens"] for each in manifests) == read_dataset_info(folder).num_tokens


def test_copies_differ_from_their_sample_in_the_key_alone(make_mixed: MakeMixed) -> None:
    import webdataset

    folder = make_mixed(num_shards=2)
    dataset = open_dataset(folder)
    by_row: dict[int, list[Any]] = {}
    num_rows = read_dataset_info(folder).preprocess["num_rows"]
    for number in range(len(dataset.index)):
        sample = dataset.sample(number)
        assert int(sample.key) == dataset.index.key[number]
        by_row.setdefault(int(sample.key) % num_rows, []).append(sample)
    assert sorted(len(copies) for copies in by_row.values()) == [1] * 5 + [2] * 7
    for first, *others in by_row.values():
        for other in others:
            assert np.array_equal(first.input_ids, other.input_ids)
            assert np.array_equal(first.labels, other.labels)
            assert all(map(np.array_equal, first.images, other.images))
            assert first.meta == other.meta
    urls = [str(path) for path in sorted((folder / "shards").glob("*.tar"))]
    keys = [sample["__key__"] for sample in webdataset.WebDataset(urls, shardshuffle=False)]
    assert len(set(keys)) == len(keys) == sum(EXPECTED.values())


def test_stopped_task_done_again_gives_the_same_data_set(
    make_mixed: MakeMixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = files_of(make_mixed(num_shards=3))
    calls = iter(range(1000))
    with monkeypatch.context() as patch:
        patch.setattr(stopping, "stop_requested", lambda: next(calls) > 8)
        with pytest.raises(StageStoppedError):
            make_mixed(2, 1, num_shards=3)
    assert files_of(make_mixed(2, 1, num_shards=3)) == expected


def test_task_killed_between_copies_gives_the_same_data_set(
    make_mixed: MakeMixed, tmp_path: Path, config: dict[str, Any]
) -> None:
    """The second of two tasks meets SIGKILL at its second copy, and is done again."""
    expected = files_of(make_mixed(num_shards=3))
    _, parts_dir = run_preprocess(tmp_path / "prep", config, 2)
    run_consolidate(tmp_path / "set", parts_dir, 2, task=(0, 2), num_shards=3)
    parent = ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=2)
    options = {"stage": "consolidate", "parents": (parent,), "config": {"num_shards": 3}}
    context = make_context(tmp_path / "set", slice_index=1, num_slices=2, **options)
    file = tmp_path / "context.json"
    file.write_text(json.dumps(record_to_json(context)))
    code = KILLED.format(module="write_shards", name="with_key", call=2)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(file)]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (tmp_path / "set" / "output" / "dataset.json").exists()
    _, folder = run_consolidate(tmp_path / "set", parts_dir, 2, task=(1, 2), num_shards=3)
    assert files_of(folder) == expected


def test_mixture_of_consolidate_needs_no_other_parts(make_mixed: MakeMixed) -> None:
    folder = make_mixed(mixture={name: {"weight": 1} for name in SHARES})
    assert names_of(folder) == {"captions": 5, "charts": 5, "chats": 5}
    with pytest.raises(StageConfigError, match=r"chart.* did you mean `charts`"):
        make_mixed(mixture={"chart": {"repeat": 1}})
    with pytest.raises(StageConfigError, match=r"charts\.weight is given, and captions has no"):
        make_mixed(mixture={"charts": {"weight": 1}})


def test_manifest_of_which_no_row_is_left_is_an_error(
    config: dict[str, Any], make_mixed: MakeMixed
) -> None:
    chats = Path(config["manifest"][2]["path"])
    chats.write_text('{"messages": 1}\n')
    with pytest.raises(StageDataError, match=r"chats\.jsonl: none of its 1 rows became a sample"):
        make_mixed(mixture={"captions": {"repeat": 3}})


def test_manifest_without_rows_is_refused_by_its_name(
    config: dict[str, Any], make_mixed: MakeMixed
) -> None:
    Path(config["manifest"][2]["path"]).write_text("")
    with pytest.raises(StageDataError, match=r"chats\.jsonl: no rows"):
        make_mixed()


def test_only_a_list_of_manifests_shows_in_parts_and_data_set(
    tmp_path: Path, processor_dir: Path
) -> None:
    path = str(write_csv_manifest(tmp_path / "source", 9))
    keys = {}
    for name, manifest in (("alone", path), ("listed", [path])):
        config = {"manifest": manifest, "processor": str(processor_dir)}
        _, parts_dir = run_preprocess(tmp_path / name, config)
        _, folder = run_consolidate(tmp_path / f"set-{name}", parts_dir)
        keys[name] = open_dataset(folder).index.key.tolist()
        for file in (parts_dir / "parts" / "part-00000.json", folder / "dataset.json"):
            assert ('"manifests"' in file.read_text()) == (name == "listed")
    assert keys["alone"] == keys["listed"]
