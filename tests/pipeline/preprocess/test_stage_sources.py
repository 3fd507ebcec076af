"""The stage `preprocess` on every kind of manifest and image source, run for real."""

from __future__ import annotations

import base64
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

from pipeline.preprocess.part import PartPaths
from pipeline.preprocess.stage import run
from slurm_jobs.shared.errors import StageConfigError, StageError
from tests.pipeline.build import make_context, run_preprocess
from tests.pipeline.tables import captions, chats, picture, write_parquet, write_saved

NUM_ROWS = 23


def samples(folder: Path, num_slices: int) -> list[tuple[int, int]]:
    """Key and checksum of every sample of a stage's output."""
    paths = [PartPaths(output_dir=folder, slice_index=i).samples for i in range(num_slices)]
    return [(int(row["key"]), int(row["xxh3"])) for path in paths for row in np.load(path)]


def preprocess(
    folder: Path, manifest: Path, processor: Path, num_slices: int = 1
) -> list[tuple[int, int]]:
    config = {"manifest": str(manifest), "processor": str(processor), "num_threads": 2}
    _, output = run_preprocess(folder, config, num_slices)
    return samples(output, num_slices)


def write_files(folder: Path) -> Path:
    folder.mkdir()
    lines = ["image_path,text"]
    for row in range(NUM_ROWS):
        (folder / f"{row}.png").write_bytes(picture(row))
        lines.append(f"{row}.png,caption {row}")
    (folder / "m.csv").write_text("\n".join(lines))
    return folder / "m.csv"


@pytest.mark.parametrize("num_slices", [1, 4, 30])
def test_samples_are_the_same_whether_pictures_are_files_or_bytes_in_a_table(
    tmp_path: Path, processor_dir: Path, num_slices: int
) -> None:
    table = captions(NUM_ROWS)
    parquet = write_parquet(tmp_path / "pq" / "1.parquet", table.slice(0, 5)).parent
    write_parquet(parquet / "2.parquet", table.slice(5))
    saved = write_saved(tmp_path / "saved", [table.slice(0, 20), table.slice(20)])
    expected = preprocess(tmp_path / "a", write_files(tmp_path / "files"), processor_dir)
    assert len(expected) == NUM_ROWS
    for name, manifest in (("b", parquet), ("c", saved)):
        assert preprocess(tmp_path / name, manifest, processor_dir, num_slices) == expected


def write_lines(path: Path, prefix: str) -> Path:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    values = (
        {"id": f"n{row}", "messages": turns, "image": f"{prefix}{row}.png"}
        for row in range(NUM_ROWS)
    )
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_samples_are_the_same_whether_pictures_are_files_or_members_of_archives(
    tmp_path: Path, processor_dir: Path
) -> None:
    write_files(tmp_path / "files")
    with tarfile.open(tmp_path / "files" / "t.tar", "w") as tar:
        tar.add(tmp_path / "files", ".", filter=lambda info: None if "t.tar" in info.name else info)
    with zipfile.ZipFile(tmp_path / "files" / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for row in range(NUM_ROWS):
            archive.write(tmp_path / "files" / f"{row}.png", f"p/{row}.png")
    found = [
        preprocess(tmp_path / str(i), write_lines(tmp_path / "files" / "m.jsonl", prefix),
                   processor_dir, 3)
        for i, prefix in enumerate(["", "t.tar::", "z.zip::p/"])
    ]  # fmt: skip
    assert len(found[0]) == NUM_ROWS
    assert found[1] == found[0]
    assert found[2] == found[0]
    for name in ("1", "2"):  # one list of members for the three slices
        assert len(list((tmp_path / name / "output" / "indexes").iterdir())) == 1


def test_chats_of_a_table_with_several_pictures_or_none_become_samples(
    tmp_path: Path, processor_dir: Path
) -> None:
    manifest = write_parquet(tmp_path / "m.parquet", chats(9))
    config = {"manifest": str(manifest), "processor": str(processor_dir)}
    (result,), output = run_preprocess(tmp_path, config)
    rows = np.load(PartPaths(output_dir=output, slice_index=0).samples)
    assert (result["num_samples"], rows["num_images"].tolist()) == (9, [0, 1, 2] * 3)


def test_rejects_of_a_table_name_row_and_picture(tmp_path: Path, processor_dir: Path) -> None:
    table = chats(6).to_pylist()
    table[2]["images"][1]["bytes"] = b"no picture"
    table[4]["images"][0]["bytes"] = b""
    table[5]["messages"] = None
    manifest = write_parquet(
        tmp_path / "m.parquet", captions(0).from_pylist(table, schema=chats(1).schema)
    )
    config = {"manifest": str(manifest), "processor": str(processor_dir), "max_reject_share": 1.0}
    _, output = run_preprocess(tmp_path, config, 2)
    lines = [
        json.loads(line)
        for index in range(2)
        for line in PartPaths(output_dir=output, slice_index=index).rejects.open()
    ]
    assert [(r["place"], r["source"], r["reason"], r["message"][:19]) for r in lines] == [
        ("m.parquet:row 2", "n2", "not_an_image", "image 2: not a supp"),
        ("m.parquet:row 4", "n4", "empty_image", "image 1: zero bytes"),
        ("m.parquet:row 5", "n5", "bad_row", "m.parquet:row 5: no"),
    ]


def broken_tar(folder: Path) -> None:
    with tarfile.open(folder / "t.tar", "w") as tar:
        for row in range(NUM_ROWS):
            tar.add(folder / f"{row}.png", f"{row}.png")
    os.truncate(folder / "t.tar", 5000)


def test_broken_archive_fails_the_slice_at_once_and_leaves_no_part(
    tmp_path: Path, processor_dir: Path
) -> None:
    write_files(tmp_path / "files")
    broken_tar(tmp_path / "files")
    manifest = write_lines(tmp_path / "files" / "m.jsonl", "t.tar::")
    config = {"manifest": str(manifest), "processor": str(processor_dir)}
    with pytest.raises(StageConfigError, match=r"t\.tar: truncated: it ends at byte 5000"):
        run(config, make_context(tmp_path))
    assert not list((tmp_path / "output" / "parts").iterdir())


def test_archive_that_changes_while_a_slice_is_made_gives_no_part_but_another_attempt(
    tmp_path: Path, processor_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.preprocess import archives

    write_files(tmp_path / "files")
    with tarfile.open(tmp_path / "files" / "t.tar", "w") as tar:
        tar.add(tmp_path / "files" / "1.png", "0.png")
        tar.add(tmp_path / "files" / "2.png", "1.png")
    config: dict[str, Any] = {
        "manifest": str(write_lines(tmp_path / "files" / "m.jsonl", "t.tar::")),
        "processor": str(processor_dir),
        "max_reject_share": 1.0,
    }
    list_tar = archives.list_tar

    def list_and_change(fd: int, num_bytes: int) -> Any:
        table = list_tar(fd, num_bytes)
        with (tmp_path / "files" / "t.tar").open("r+b") as stream:
            stream.write(bytes(2000))
        return table

    monkeypatch.setattr(archives, "list_tar", list_and_change)
    with pytest.raises(StageError, match=r"t\.tar: changed since its members were") as caught:
        run(config, make_context(tmp_path))
    assert not isinstance(caught.value, StageConfigError)


def write_inline(manifest: Path, encode: Callable[[bytes], str]) -> Path:
    """The rows of `write_files`, each with its picture as text."""
    manifest.parent.mkdir()
    if manifest.suffix == ".csv":
        lines = [f'"{encode(picture(row))}",caption {row}' for row in range(NUM_ROWS)]
        manifest.write_text("\n".join(["image_path,text", *lines]))
        return manifest
    table = captions(NUM_ROWS)
    texts = pa.array([encode(picture(row)) for row in range(NUM_ROWS)])
    return write_parquet(
        manifest, table.set_column(table.schema.get_field_index("image"), "image", texts)
    )


def data_uri(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def members(
    folder: Path, manifest: Path, processor: Path, num_slices: int = 1
) -> dict[str, bytes | dict[str, Any]]:
    """Tokens, stored image and metadata of each sample, without the name of its picture."""
    config = {"manifest": str(manifest), "processor": str(processor), "num_threads": 2}
    _, output = run_preprocess(folder, config, num_slices)
    contents: dict[str, bytes | dict[str, Any]] = {}
    for index in range(num_slices):
        with tarfile.open(PartPaths(output_dir=output, slice_index=index).tar) as tar:
            for member in tar:
                data = tar.extractfile(member).read()
                values = json.loads(data) if member.name.endswith(".json") else None
                contents[member.name] = data if values is None else {**values, "source": None}
    return contents


@pytest.mark.parametrize("name", ["m.csv", "m.parquet"])
@pytest.mark.parametrize("encode", [data_uri, lambda data: base64.b64encode(data).decode()])
def test_samples_are_the_same_whether_pictures_are_files_or_text_of_the_manifest(
    tmp_path: Path, processor_dir: Path, name: str, encode: Callable[[bytes], str]
) -> None:
    manifest = write_inline(tmp_path / "inline" / name, encode)
    expected = members(tmp_path / "a", write_files(tmp_path / "files"), processor_dir)
    assert len(expected) == 3 * NUM_ROWS
    assert members(tmp_path / "b", manifest, processor_dir, 3) == expected


@pytest.mark.parametrize("value", ["data:image/png;base64,!", "http://a/", "", "x/"])
def test_a_list_of_rejects_holds_no_unbounded_text(
    tmp_path: Path, processor_dir: Path, value: str
) -> None:
    manifest = tmp_path / "m.jsonl"
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    row = {"messages": turns, "images": [value + "AAAA" * 100_000]}
    good = json.dumps({"messages": turns})
    manifest.write_text((json.dumps(row) + "\n") * 20 + good)
    config = {"manifest": str(manifest), "processor": str(processor_dir), "max_reject_share": 1.0}
    _, output = run_preprocess(tmp_path / "out", config)
    rejects = PartPaths(output_dir=output, slice_index=0).rejects.read_text().splitlines()
    assert len(rejects) == 20
    assert max(map(len, rejects)) < 5000
