"""The stage `preprocess` on WebDataset tars, against the same rows as JSON lines."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.preprocess.manifest import open_manifest
from pipeline.preprocess.manifests import tar_manifest
from slurm_jobs.base.errors import StageConfigError, StageError
from tests.pipeline.build import run_preprocess
from tests.pipeline.preprocess.slices import rejects_of
from tests.pipeline.tables import picture
from tests.webdataset_tars import write_energon, write_tar

NUM_ROWS = 11
Members = dict[str, Any]
Row = dict[str, Any]


def words(row: int) -> str:
    return f"caption {row}"


def turns(row: int) -> list[dict[str, str]]:
    question = {"from": "human", "value": "<image>\nWhich? <image>"}
    return [question, {"from": "gpt", "value": words(row)}]


def img2dataset(row: int) -> tuple[Members, Row]:
    about = {"caption": words(row), "url": f"https://a.org/{row}.png", "status": "success"}
    members = {"png": picture(row), "json": about, "txt": words(row)}
    return members, {"image": f"{row}.png", "text": words(row)}


def plain(row: int) -> tuple[Members, Row]:
    return {"txt": words(row), "png": picture(row)}, {"image": f"{row}.png", "text": words(row)}


def classes(row: int) -> tuple[Members, Row]:
    members = {"png": picture(row), "cls": f"{row % 3}"}
    return members, {"image": f"{row}.png", "cls": f"{row % 3}"}


def conversation(row: int) -> tuple[Members, Row]:
    other = (row + 1) % NUM_ROWS
    members = {
        "1.png": picture(other),
        "0.png": picture(row),
        "json": {"conversations": turns(row)},
    }
    return members, {"image": [f"{row}.png", f"{other}.png"], "conversations": turns(row)}


def energon_vqa(row: int) -> tuple[Members, Row]:
    about = {"qa": {"question": "What?", "answers": [words(row), "no"]}}
    members = {"png": picture(row), "json": about, "npy": b"not in the field map"}
    row_values = {"image": f"{row}.png", "question": "What?", "answers": [words(row), "no"]}
    return members, row_values


LAYOUTS = (img2dataset, plain, classes, conversation, energon_vqa)


def write_folder(folder: Path, layout: Callable[[int], tuple[Members, Row]]) -> Path:
    """Three tars in a folder, and the same rows in `rows.jsonl` of the folder above."""
    rows = []
    for tar, numbers in enumerate((range(5), range(5, 6), range(6, NUM_ROWS))):
        members: Members = {}
        for number in numbers:
            of_row, row = layout(number)
            members |= {f"d/{number:04d}.{name}": content for name, content in of_row.items()}
            rows.append({"id": f"d/{number:04d}", **row})
            (folder.parent / f"{number}.png").write_bytes(picture(number))
        write_tar(folder / f"{tar:05d}.tar", members)
        if layout is img2dataset:
            (folder / f"{tar:05d}.parquet").write_bytes(b"PAR1")
            (folder / f"{tar:05d}_stats.json").write_text('{"successes": 1}')
    if layout is energon_vqa:
        write_energon(
            folder,
            {"split_parts": {"train": ["{00000..00002}.tar"]}},
            sample_type={"__module__": "megatron.energon", "__class__": "VQASample"},
            field_map={
                "image": "png",
                "context": "json[qa][question]",
                "answers": "json[qa][answers]",
            },
        )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder.parent / "rows.jsonl").write_text(lines)
    return folder


@pytest.fixture
def samples_of(tmp_path: Path, processor_dir: Path) -> Callable[..., list[tuple[int, int]]]:
    """Run the stage; return key and checksum of each sample."""

    def make(manifest: Path, num_slices: int = 1, **config: Any) -> list[tuple[int, int]]:
        config |= {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 2}
        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        _, output = run_preprocess(folder, config, num_slices)
        parts = sorted((output / "parts").glob("*.samples.npy"))
        rows = np.concatenate([np.load(part) for part in parts])
        return [(int(row["key"]), int(row["xxh3"])) for row in rows]

    return make


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_of_tars_are_those_of_json_lines_in_any_slices(
    tmp_path: Path, samples_of: Any, layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_manifest, "_TARS_OF_A_COUNT", 2)
    folder = write_folder(tmp_path / "tars", layout)
    config = {"columns": {"text": "cls"}} if layout is classes else {}
    expected = samples_of(tmp_path / "rows.jsonl", **config)
    assert len(expected) == NUM_ROWS
    for num_slices in (1, 4, 13):
        assert samples_of(folder, num_slices, **config) == expected
    if layout is not energon_vqa:  # its members need the metadata of the folder
        assert samples_of(folder / "{00000..00002}.tar", **config) == expected
    # two for the tars, which the thirteen slices share
    (indexes,) = tmp_path.glob("run-3/output/indexes")
    assert len(list(indexes.iterdir())) == 2


def test_one_tar_is_a_manifest_and_its_bad_rows_are_rejects_by_key(
    tmp_path: Path, processor_dir: Path
) -> None:
    members = {
        "0.png": picture(0), "0.txt": "good",
        "1.png": picture(1), "1.txt": "",
        "2.png": b"no picture", "2.txt": "bad",
        "3.png": picture(3),
    }  # fmt: skip
    tar = write_tar(tmp_path / "t.tar", members)
    config = {"manifest": str(tar), "processor": str(processor_dir), "max_reject_share": 1.0}
    _, output = run_preprocess(tmp_path / "run", config)
    found = [(r["place"], r["source"], r["reason"]) for r in rejects_of(output)]
    assert found == [
        ("t.tar:1", "1", "bad_row"),
        ("t.tar:2", "2", "not_an_image"),
        ("t.tar:3", "3", "bad_row"),
    ]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda tar: os.truncate(tar, 2000), r"00001\.tar: truncated: it ends at byte 2000"),
        (lambda tar: os.truncate(tar, 512), r"00001\.tar: truncated: it ends at byte 512"),
        (lambda tar: tar.write_bytes(gzip.compress(tar.read_bytes())), r"compressed \(gzip\)"),
    ],
)
def test_a_damaged_tar_fails_every_slice(
    tmp_path: Path, samples_of: Any, damage: Any, said: str
) -> None:
    folder = write_folder(tmp_path / "tars", plain)
    damage(folder / "00001.tar")
    with pytest.raises(StageConfigError, match=said):
        samples_of(folder)
    assert not list(tmp_path.glob("run-0/output/parts/*"))


def test_a_limit_reads_only_the_tars_that_it_needs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tars", plain)
    (folder / "00002.tar").write_bytes(b"damaged")
    manifest = open_manifest(folder, limit=6)
    assert [row.messages[-1].text for row in manifest.rows(range(6))] == list(map(words, range(6)))
    assert manifest.num_rows == 6


def test_excluded_samples_are_no_rows(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tars", energon_vqa)
    splits = {"split_parts": {"train": ["00001.tar", "00002.tar"]}}
    splits["exclude"] = ["00002.tar/d/0007"]  # type: ignore[assignment]
    (folder / ".nv-meta" / "split.yaml").write_text(json.dumps(splits))
    manifest = open_manifest(folder)
    rows = list(manifest.rows(range(manifest.num_rows)))
    assert [row.source for row in rows] == [f"d/{number:04d}" for number in (5, 6, 8, 9, 10)]


@pytest.mark.parametrize("change", ["words", "missing", "cut"])
def test_a_tar_that_changes_after_it_was_counted_leads_to_a_retry(
    tmp_path: Path, change: str
) -> None:
    folder = write_folder(tmp_path / "tars", plain)
    indexes = tmp_path / "indexes"
    manifest = open_manifest(folder, index_dir=indexes)
    tar = folder / "00001.tar"
    if change == "words":
        tar.write_bytes(tar.read_bytes().replace(b"caption 5", b"drawing 5"))
    elif change == "cut":
        os.truncate(tar, 1024)
    else:
        tar.unlink()
    with pytest.raises(
        StageError, match=r"tars: changed while its rows were read \(00001"
    ) as caught:
        list(manifest.rows(range(NUM_ROWS)))
    assert not isinstance(caught.value, StageConfigError)
    assert manifest.fingerprint_now() != manifest.fingerprint
    assert not list(indexes.iterdir())
