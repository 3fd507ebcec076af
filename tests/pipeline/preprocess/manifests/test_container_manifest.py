"""Manifests that are joined from a JSON object: rows by number, and changes while they are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pipeline.preprocess.manifest import open_manifest

VALUES = {
    "images": [{"id": number, "file_name": f"{number}.jpg"} for number in range(3)],
    "annotations": [
        {"id": number, "image_id": number % 3, "caption": f"picture {number}"}
        for number in range(10)
    ],
}


def test_slices_read_the_rows_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(VALUES))
    manifest = open_manifest(path, limit=8)
    rows = [row for start in range(0, 8, 3) for row in manifest.rows(range(start, start + 3))]
    assert [row.messages[-1].text for row in rows] == [f"picture {number}" for number in range(8)]
    assert [row.image_paths for row in rows[:4]] == [("0.jpg",), ("1.jpg",), ("2.jpg",), ("0.jpg",)]
    assert [str(row.origin) for row in rows[:2]] == ["captions.json:row 0", "captions.json:row 1"]


def test_the_fingerprint_follows_the_content_and_not_the_time(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(VALUES))
    manifest = open_manifest(path)
    os.utime(path, ns=(1, 1))
    assert manifest.fingerprint_now() == manifest.fingerprint
    path.write_text(json.dumps(VALUES).replace("picture 9", "drawing 9"))
    assert manifest.fingerprint_now() not in (None, manifest.fingerprint)
    path.unlink()
    assert manifest.fingerprint_now() is None
