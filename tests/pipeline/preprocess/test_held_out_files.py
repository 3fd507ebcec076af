"""Held-out rows are read back as they were, with the same pictures."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.preprocess.held_out_files import HeldOutWriter, PictureArchive
from pipeline.preprocess.images.image_sources import ImageSource
from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import ManifestRow
from tests.pipeline.build import write_image

ASKED = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?\n "}]}
LEFT_OUT = {"role": "assistant", "content": "a cat", "loss": False}
LEARNED = [{"role": "user", "content": "And?"}, {"role": "assistant", "content": "a dog"}]


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def written(rows: list[ManifestRow], root: Path, folder: Path) -> Path:
    """The manifest of these rows, next to the archive of their pictures."""
    source = ImageSource(root)
    folder.mkdir()
    manifest = folder / "manifest.jsonl"
    with manifest.open("wb") as lines, (folder / "pictures.tar").open("wb") as pictures:
        writer = HeldOutWriter(share=0.5, rows=lines, pictures=PictureArchive(pictures))
        for row in rows:
            writer.add(row, [source.read(image) for image in row.images])
        writer.pictures.finish()
    return manifest


def contents(row: ManifestRow, root: Path) -> list[tuple[Any, ...]]:
    """What a model sees of a row, and what of it is learned."""
    source = ImageSource(root)
    return [
        (
            message.role,
            message.is_learned,
            [i.value if i.kind == "text" else source.read(i) for i in message.content],
        )
        for message in row.messages
    ]


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([{"image": "red.png", "text": "a <b>red</b> square"}], {"system_prompt": "Be brief."}),
        ([{"photo": "red.png", "words": "red"}], {"columns": Columns(image="photo", text="words")}),
        ([{"image": "red.png", "question": "Which?", "answer": "red", "system": "S"}], {}),
        ([{"question": "1 + 1?", "answer": "2"}], {}),
        (
            [
                {
                    "id": "one",
                    "images": ["red.png", "green.png", "red.png"],
                    "conversations": [
                        {"from": "human", "value": "First <image>\nthen <image> and <image>"},
                        {"from": "gpt", "value": "Two."},
                    ],
                }
            ],
            {},
        ),
        ([{"images": ["red.png"], "messages": [ASKED, LEFT_OUT, *LEARNED]}], {}),
        (
            [
                {"image": "INLINE", "text": "in the row"},
                {"image": "green.png", "text": "a \u2028 b"},
            ],
            {},
        ),
    ],
)
def test_rows_are_read_back_as_they_were(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write_image(source / "red.png")
    write_image(source / "green.png", (0, 160, 0))
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (source / "m.jsonl").write_text(text.replace("INLINE", inline(source / "red.png")))
    before = read_manifest(source / "m.jsonl", **options)
    assert not any(row.problem for row in before)
    manifest = written(before, source, tmp_path / "held_out")
    after = read_manifest(manifest)
    assert [contents(row, manifest.parent) for row in after] == [
        contents(row, source) for row in before
    ]
    for row, original in zip(after, before, strict=True):
        assert not original.source or row.source == original.source


def test_picture_of_several_rows_is_stored_once() -> None:
    stream = io.BytesIO()
    archive = PictureArchive(stream)
    names = [archive.add(data) for data in (b"one", b"two", b"one")]
    archive.finish()
    assert names[0] == names[2] != names[1]
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        assert tar.getnames() == names[:2]
