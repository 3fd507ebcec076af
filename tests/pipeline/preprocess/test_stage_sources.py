"""The stage `preprocess` on every kind of manifest and image source, run for real."""

from __future__ import annotations

import base64
import itertools
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.preprocess import archives
from slurm_jobs.base.errors import StageConfigError, StageError
from tests.pipeline.build import run_preprocess
from tests.pipeline.tables import captions, chats, picture, write_parquet, write_saved

NUM_ROWS = 23
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
Preprocess = Callable[..., Path]


@pytest.fixture
def preprocess(tmp_path: Path, processor_dir: Path) -> Preprocess:
    """Run the stage over a manifest, each time in another folder; return the folder of parts."""
    numbers = itertools.count()

    def make(manifest: Path, num_slices: int = 1, **config: Any) -> Path:
        config |= {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 2}
        _, output = run_preprocess(tmp_path / f"run-{next(numbers)}", config, num_slices)
        return output / "parts"

    return make


def samples(parts: Path) -> list[tuple[int, int]]:
    """Key and checksum of every sample."""
    rows = np.concatenate([np.load(path) for path in sorted(parts.glob("*.samples.npy"))])
    return [(int(row["key"]), int(row["xxh3"])) for row in rows]


def rejects(parts: Path) -> list[str]:
    paths = sorted(parts.glob("*.rejects.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


def members(parts: Path) -> dict[str, bytes | dict[str, Any]]:
    """Tokens, stored image and metadata of each sample, without the name of its picture."""
    contents: dict[str, bytes | dict[str, Any]] = {}
    for path in parts.glob("*.tar"):
        with tarfile.open(path) as tar:
            for member in tar:
                data = tar.extractfile(member).read()
                is_json = member.name.endswith(".json")
                contents[member.name] = {**json.loads(data), "source": None} if is_json else data
    return contents


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of pictures and their manifest `m.csv`."""
    folder = tmp_path / "files"
    folder.mkdir()
    lines = ["image_path,text"]
    for row in range(NUM_ROWS):
        (folder / f"{row}.png").write_bytes(picture(row))
        lines.append(f"{row}.png,caption {row}")
    (folder / "m.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("num_slices", [1, 4, 30])
def test_samples_of_pictures_in_files_and_in_a_table_are_equal(
    tmp_path: Path, files: Path, preprocess: Preprocess, num_slices: int
) -> None:
    table = captions(NUM_ROWS)
    parquet = write_parquet(tmp_path / "pq" / "1.parquet", table.slice(0, 5)).parent
    write_parquet(parquet / "2.parquet", table.slice(5))
    saved = write_saved(tmp_path / "saved", [table.slice(0, 20), table.slice(20)])
    expected = samples(preprocess(files / "m.csv"))
    assert len(expected) == NUM_ROWS
    for manifest in (parquet, saved):
        assert samples(preprocess(manifest, num_slices)) == expected


def write_lines(folder: Path, prefix: str) -> Path:
    rows = [
        {"id": f"n{row}", "messages": TURNS, "image": f"{prefix}{row}.png"}
        for row in range(NUM_ROWS)
    ]
    (folder / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "m.jsonl"


def write_tar(folder: Path, num_pictures: int = NUM_ROWS) -> Path:
    with tarfile.open(folder / "t.tar", "w") as tar:
        for row in range(num_pictures):
            tar.add(folder / f"{row}.png", f"./{row}.png")
    return folder / "t.tar"


def test_samples_of_pictures_in_files_and_in_archives_are_equal(
    files: Path, preprocess: Preprocess
) -> None:
    write_tar(files)
    with zipfile.ZipFile(files / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for row in range(NUM_ROWS):
            archive.write(files / f"{row}.png", f"p/{row}.png")
    expected = samples(preprocess(write_lines(files, "")))
    assert len(expected) == NUM_ROWS
    for prefix in ("t.tar::", "z.zip::p/"):
        parts = preprocess(write_lines(files, prefix), 3)
        assert samples(parts) == expected
        assert len(list((parts.parent / "indexes").iterdir())) == 1  # for the three slices


def test_chats_of_a_table_with_several_pictures_or_none_become_samples(
    tmp_path: Path, preprocess: Preprocess
) -> None:
    parts = preprocess(write_parquet(tmp_path / "m.parquet", chats(9)))
    rows = np.load(parts / "part-00000.samples.npy")
    assert rows["num_images"].tolist() == [0, 1, 2] * 3


def test_rejects_of_a_table_name_row_and_picture(tmp_path: Path, preprocess: Preprocess) -> None:
    rows = chats(6).to_pylist()
    rows[2]["images"][1]["bytes"] = b"no picture"
    rows[4]["images"][0]["bytes"] = b""
    rows[5]["messages"] = None
    table = pa.Table.from_pylist(rows, schema=chats(1).schema)
    manifest = write_parquet(tmp_path / "m.parquet", table)
    found = [json.loads(line) for line in rejects(preprocess(manifest, 2, max_reject_share=1.0))]
    assert [(r["place"], r["source"], r["reason"], r["message"][:19]) for r in found] == [
        ("m.parquet:row 2", "n2", "not_an_image", "image 2: not a supp"),
        ("m.parquet:row 4", "n4", "empty_image", "image 1: zero bytes"),
        ("m.parquet:row 5", "n5", "bad_row", "m.parquet:row 5: no"),
    ]


def test_broken_archive_fails_the_slice_at_once_and_leaves_no_part(
    tmp_path: Path, files: Path, preprocess: Preprocess
) -> None:
    os.truncate(write_tar(files), 5000)
    with pytest.raises(StageConfigError, match=r"t\.tar: truncated: it ends at byte 5000"):
        preprocess(write_lines(files, "t.tar::"))
    assert not list((tmp_path / "run-0" / "output" / "parts").iterdir())


def test_archive_that_changes_during_a_slice_leads_to_a_retry_and_no_part(
    files: Path, preprocess: Preprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, list_tar = write_tar(files, num_pictures=2), archives.list_tar

    def list_and_change(fd: int, num_bytes: int) -> Any:
        table = list_tar(fd, num_bytes)
        with path.open("r+b") as stream:
            stream.write(bytes(2000))
        return table

    monkeypatch.setattr(archives, "list_tar", list_and_change)
    with pytest.raises(StageError, match=r"t\.tar: changed since its members were") as caught:
        preprocess(write_lines(files, "t.tar::"), max_reject_share=1.0)
    assert not isinstance(caught.value, StageConfigError)


@pytest.mark.parametrize("name", ["m.csv", "m.parquet"])
@pytest.mark.parametrize("prefix", ["data:image/png;base64,", ""])
def test_samples_of_pictures_in_files_and_in_manifest_text_are_equal(
    tmp_path: Path, files: Path, preprocess: Preprocess, name: str, prefix: str
) -> None:
    manifest = tmp_path / name
    texts = [prefix + base64.b64encode(picture(row)).decode() for row in range(NUM_ROWS)]
    if name == "m.csv":
        lines = [f'"{text}",caption {row}' for row, text in enumerate(texts)]
        manifest.write_text("\n".join(["image_path,text", *lines]))
    else:
        write_parquet(manifest, captions(NUM_ROWS).set_column(0, "image", pa.array(texts)))
    expected = members(preprocess(files / "m.csv"))
    assert len(expected) == 3 * NUM_ROWS
    assert members(preprocess(manifest, 3)) == expected


@pytest.mark.parametrize("value", ["data:image/png;base64,!", "http://a/", "", "x/"])
def test_a_list_of_rejects_holds_no_unbounded_text(
    tmp_path: Path, preprocess: Preprocess, value: str
) -> None:
    row = json.dumps({"messages": TURNS, "images": [value + "AAAA" * 100_000]})
    manifest = tmp_path / "m.jsonl"
    manifest.write_text(f"{row}\n" * 20 + json.dumps({"messages": TURNS}))
    found = rejects(preprocess(manifest, max_reject_share=1.0, text_only=True))
    assert len(found) == 20
    assert max(map(len, found)) < 5000
