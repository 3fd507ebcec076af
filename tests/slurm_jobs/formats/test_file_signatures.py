"""Formats that the job decodes begin as an image."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pipeline.preprocess.images.image_formats import FORMATS
from slurm_jobs.formats.file_signatures import HEAD_BYTES, begins_as_image, signature_of


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


@pytest.mark.parametrize(
    ("magic", "offset"),
    [(b"WEBP", 8), (b"AVI ", 8), (b"WAVE", 8), (b" EMF", 40), (b"DICM", 128), (b"ustar", 257)],
)
def test_letters_in_the_middle_of_a_file_do_not_tell_its_format(magic: bytes, offset: int) -> None:
    text = b"caption,".ljust(offset, b"x") + magic + b"_path\n"
    assert signature_of(text) is None
    table = b"PAR1\x15\0".ljust(offset, b"x") + magic + b"\0"
    signature = signature_of(table)
    assert signature is not None
    assert signature.group == "parquet"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"RIFF\x24\0\0\0WEBPVP8 ", "WebP"),
        (b"RIFF\xff\xff\xff\xffAVI LIST", "AVI"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "WAV"),
        (b"\1\0\0\0".ljust(40, b"\0") + b" EMF", "EMF"),
        (bytes(128) + b"DICM\2\0\0\0UL", "DICOM"),
        (b"a.csv".ljust(257, b"\0") + b"ustar", "tar"),
    ],
)
def test_formats_whose_signature_is_further_on_are_recognised(head: bytes, name: str) -> None:
    signature = signature_of(head)
    assert signature is not None
    assert signature.name == name
