"""The size of a picture as it stands upright, by what its file states."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.images.decode import decode_upright, open_image, read_upright_size
from pipeline.preprocess.rejects import SampleRejectedError
from tests.pipeline.preprocess.pictures import encode


def gradient() -> Image.Image:
    pixels = np.arange(16 * 16 * 3, dtype=np.uint32).reshape(16, 16, 3) % 256
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(10))
def test_the_upright_size_is_read_without_decoding_a_pixel(
    kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = encode(gradient().crop((0, 0, 16, 9)), kind, exif=exif)
    plain = encode(gradient().crop((0, 0, 16, 9)), kind)
    expected = decode_upright(open_image(turned, max_pixels=10_000, name="x"), "x").size

    def load(_image: Image.Image) -> None:
        pytest.fail("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    assert read_upright_size(turned, max_pixels=10_000, name="x") == expected
    assert read_upright_size(plain, max_pixels=10_000, name="x") == (16, 9)


def test_the_size_of_a_png_with_its_orientation_after_the_pixels_is_read() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    chunks = encode(gradient().crop((0, 0, 16, 9)), exif=exif)
    start = chunks.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(chunks[start : start + 4], "big")
    iend = chunks.index(b"IEND") - 4
    moved = chunks[:start] + chunks[end:iend] + chunks[start:end] + chunks[iend:]
    assert decode_upright(open_image(moved, max_pixels=10_000, name="x"), "x").size == (9, 16)
    assert read_upright_size(moved, max_pixels=10_000, name="x") == (9, 16)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"404 not found", "not_an_image"),
        (encode(Image.new("RGB", (200, 100))), "too_many_pixels"),
        (encode(Image.new("RGB", (8, 8)))[:20], "truncated_image"),
    ],
)
def test_file_that_does_not_state_a_size_that_can_be_used_is_rejected(
    data: bytes, reason: str
) -> None:
    with pytest.raises(SampleRejectedError) as raised:
        read_upright_size(data, max_pixels=10_000, name="x")
    assert raised.value.reason == reason
