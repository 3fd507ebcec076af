"""Image files of every kind, good and broken, through the real decoder."""

from __future__ import annotations

import errno
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipeline.preprocess.images import (
    decode_image,
    image_to_bytes,
    read_image_bytes,
    read_upright_size,
)
from pipeline.preprocess.rejects import SampleRejectedError


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decode(data: bytes, max_pixels: int = 10_000) -> np.ndarray:
    image, _ = decode_image(data, max_pixels=max_pixels, name="x")
    assert image.mode == "RGB"
    return np.asarray(image)


def gradient(mode: str = "RGB") -> Image.Image:
    pixels = np.arange(16 * 16 * 3, dtype=np.uint32).reshape(16, 16, 3) % 256
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


def test_exif_orientation_is_applied() -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # stored rotated by 90 degrees
    data = encode(Image.fromarray(pixels), "JPEG", quality=95, exif=exif)
    upright = decode(data)
    assert upright.shape == (16, 8, 3)
    assert upright[0].mean() > 250
    assert upright[-1].mean() < 5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(10))
def test_upright_size_is_told_without_decoding_a_pixel(
    kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = encode(gradient().crop((0, 0, 16, 9)), kind, exif=exif)
    plain = encode(gradient().crop((0, 0, 16, 9)), kind)
    expected = decode_image(turned, max_pixels=10_000, name="x")[0].size

    def load(_image: Image.Image) -> None:
        pytest.fail("decoded")

    if kind != "PNG":  # Pillow looks for the orientation behind the pixels, too
        monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    assert read_upright_size(turned, max_pixels=10_000, name="x") == expected
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    assert read_upright_size(plain, max_pixels=10_000, name="x") == (16, 9)


def test_size_of_a_png_that_is_turned_behind_its_pixels_is_told() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    chunks = encode(gradient().crop((0, 0, 16, 9)), exif=exif)
    start = chunks.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(chunks[start : start + 4], "big")
    iend = chunks.index(b"IEND") - 4
    moved = chunks[:start] + chunks[end:iend] + chunks[start:end] + chunks[iend:]
    assert decode_image(moved, max_pixels=10_000, name="x")[0].size == (9, 16)
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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(10))
def test_each_orientation_gives_the_pixels_that_pillow_gives(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(gradient().crop((0, 0, 16, 9)), kind, exif=exif)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(decode(data), np.asarray(ImageOps.exif_transpose(image)))


def test_exif_tag_that_cannot_be_written_anew_does_not_reject_a_turned_picture() -> None:
    """Orientation 6, and a width (0x0100) of -1 as a signed short, in a TIFF block of two tags."""
    tags = ((0x0100, 8, struct.pack("<hxx", -1)), (0x0112, 3, struct.pack("<Hxx", 6)))
    entries = b"".join(struct.pack("<HHI", tag, kind, 1) + value for tag, kind, value in tags)
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    data = encode(gradient().crop((0, 0, 16, 9)), "JPEG", exif=block)
    assert decode(data).shape == (16, 9, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_becomes_white(mode: str) -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    assert decode(encode(clear)).min() == 255


def test_transparent_palette_entry_becomes_white() -> None:
    image = Image.new("P", (4, 4), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((0, 0), 1)
    pixels = decode(encode(image, transparency=0))
    assert tuple(pixels[0, 0]) == (200, 100, 50)
    assert tuple(pixels[1, 1]) == (255, 255, 255)


def test_16_bit_grey_is_scaled_and_not_clipped() -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    pixels = decode(encode(Image.fromarray(values)))
    assert pixels[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(
    ("mode", "kind"), [("CMYK", "JPEG"), ("L", "PNG"), ("1", "PNG"), ("P", "GIF"), ("RGB", "WEBP")]
)
def test_common_modes_become_rgb(mode: str, kind: str) -> None:
    assert decode(encode(gradient(mode), kind)).shape == (16, 16, 3)


def test_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert tuple(decode(data)[0, 0]) == (255, 0, 0)


BROKEN = {
    "not_an_image": b"this is no image",
    "truncated_image": encode(gradient(), "JPEG")[:-200],
    "corrupt_image": encode(gradient())[:60] + b"\0" * 40 + encode(gradient())[100:],
    "too_many_pixels": encode(Image.new("L", (101, 100))),
    "unsupported_mode": encode(Image.new("F", (4, 4)), "TIFF"),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_broken_image_is_rejected_with_its_reason(reason: str) -> None:
    with pytest.raises(SampleRejectedError) as raised:
        decode(BROKEN[reason])
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.png", "missing_image"),
        ("empty.png/x", "missing_image"),
        ("x" * 300, "missing_image"),
        ("a\0b", "missing_image"),
        ("empty.png", "empty_image"),
        (".", "unreadable_image"),
    ],
)
def test_file_that_cannot_be_read_is_rejected_under_the_manifests_name(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(SampleRejectedError) as raised:
        read_image_bytes(tmp_path, name)
    assert raised.value.reason == reason
    assert str(tmp_path) not in str(raised.value)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may be read: the tests may run as root, which may read everything."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)


def test_file_whose_mode_forbids_it_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").touch(mode=0o200)
    refuse(monkeypatch)
    with pytest.raises(SampleRejectedError, match=r"^a\.png: Permission denied") as raised:
        read_image_bytes(tmp_path, "a.png")
    assert raised.value.reason == "unreadable_image"


def test_refusal_that_the_mode_does_not_explain_is_the_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").touch(mode=0o600)
    refuse(monkeypatch)
    with pytest.raises(PermissionError):
        read_image_bytes(tmp_path, "a.png")


def test_image_is_not_missing_where_its_root_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_image_bytes(tmp_path / "unmounted", "a.png")


@pytest.mark.parametrize("image_format", ["png", "raw"])
def test_lossless_formats_keep_every_pixel(image_format: str) -> None:
    pixels = np.asarray(gradient())
    data = image_to_bytes(pixels, image_format, 95)
    assert data == image_to_bytes(pixels.copy(), image_format, 95)
    found = np.load(io.BytesIO(data)) if image_format == "raw" else decode(data)
    assert np.array_equal(found, pixels)


def test_lack_of_memory_is_no_fault_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reject would make the data set depend on the node; memory cannot be made to lack here."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")

    def lack(_image: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lack)
    with pytest.raises(MemoryError):
        decode_image(stream.getvalue(), max_pixels=100, name="a.png")
