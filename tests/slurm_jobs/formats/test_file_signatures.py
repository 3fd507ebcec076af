"""Formats that the job decodes begin as an image."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pipeline.preprocess.images.image_formats import FORMATS
from slurm_jobs.formats.file_signatures import HEAD_BYTES, begins_as_image


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_that_the_job_decodes_begins_as_an_image(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "x"
    if kind == "PSD":  # Pillow only reads it
        file.write_bytes(b"8BPS\0\1")
    elif kind == "QOI":
        file.write_bytes(b"qoif")
    else:
        Image.new("RGB", (64, 48)).save(file, kind)
    assert begins_as_image(file.read_bytes()[:HEAD_BYTES])
