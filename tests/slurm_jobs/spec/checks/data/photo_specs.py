"""Specs whose manifest names photos."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC

PHOTO, SMALL = (4032, 3024), (64, 48)


def picture(size: tuple[int, int]) -> bytes:
    stream = io.BytesIO()
    Image.new("1", size).save(stream, "PNG")
    return stream.getvalue()


def write(folder: Path, *rows: str | list[str], name: str = "m.jsonl") -> str:
    """Write a manifest of rows with these images, and return the spec that reads it."""
    texts = [json.dumps({"image": row, "prompt": "?", "text": "!"}) for row in rows]
    (folder / name).write_text("\n".join(texts) + "\n")
    return SPEC.format(name=name)
