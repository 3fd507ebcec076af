"""Strange, turned and broken pictures, in each way of decoding."""

from __future__ import annotations

import io
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL
import pytest
from PIL import Image, ImageOps

from benchmarks.photographs import as_jpeg, make_photograph
from pipeline.preprocess.images import load_pixels as module
from pipeline.preprocess.images.decode import limit_inner_pixels
from pipeline.preprocess.images.resize import Resize
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.stages import ImageDecoding
from tests.pipeline.preprocess.pictures import (
    WAYS,
    difference,
    encode,
    every_way,
    gradient,
    load,
    psnr,
    smooth,
    to,
)


@every_way
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(10))
def test_each_orientation_gives_the_pixels_that_pillow_gives(
    kind: str, orientation: int, decoding: ImageDecoding
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(gradient().crop((0, 0, 16, 9)), kind, exif=exif)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(load(data, decoding), np.asarray(ImageOps.exif_transpose(image)))


@every_way
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_jpeg_is_resized_and_cut_as_the_upright_one_would_be(
    orientation: int, decoding: ImageDecoding
) -> None:
    """640 x 427 pixels, decoded smaller by `fast` and `fine`, with a cut that is not symmetric."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(smooth(640, 427), "JPEG", quality=95, exif=exif)
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
    assert upright is not None
    seen = []

    def target(width: int, height: int) -> Resize:
        seen.append((width, height))
        size = (round(width / 7), round(height / 7))
        return Resize(width=size[0], height=size[1], resample=3, crop=(3, 5, 40, 30))

    found = load(data, decoding, target)
    resize = target(*upright.size)
    expected = upright.resize((resize.width, resize.height), 3).crop((3, 5, 40, 30))
    assert set(seen) == {upright.size}
    assert difference(found, np.asarray(expected)) <= 3


@every_way
def test_an_exif_tag_that_cannot_be_rewritten_does_not_reject_a_picture(
    decoding: ImageDecoding,
) -> None:
    """Orientation 6, and a width (0x0100) of -1 as a signed short, in a TIFF block of two tags."""
    tags = ((0x0100, 8, struct.pack("<hxx", -1)), (0x0112, 3, struct.pack("<Hxx", 6)))
    entries = b"".join(struct.pack("<HHI", tag, kind, 1) + value for tag, kind, value in tags)
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    data = encode(gradient().crop((0, 0, 16, 9)), "JPEG", exif=block)
    assert load(data, decoding).shape == (16, 9, 3)


@every_way
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_becomes_white(mode: str, decoding: ImageDecoding) -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    assert load(encode(clear), decoding).min() == 255


@every_way
def test_transparent_palette_entry_becomes_white(decoding: ImageDecoding) -> None:
    image = Image.new("P", (4, 4), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((0, 0), 1)
    pixels = load(encode(image, transparency=0), decoding)
    assert tuple(pixels[0, 0]) == (200, 100, 50)
    assert tuple(pixels[1, 1]) == (255, 255, 255)


@every_way
def test_16_bit_grey_is_scaled_and_not_clipped(decoding: ImageDecoding) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    pixels = load(encode(Image.fromarray(values)), decoding)
    assert pixels[0, :, 0].tolist() == [0, 1, 128, 255]


@every_way
def test_transparent_16_bit_grey_is_white(decoding: ImageDecoding) -> None:
    values = np.array([[0, 32896, 65535]], dtype=np.uint16)
    pixels = load(encode(Image.fromarray(values), transparency=32896), decoding)
    assert pixels[0, :, 0].tolist() == [0, 255, 255]


@every_way
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("CMYK", "JPEG"),
        ("L", "JPEG"),
        ("L", "PNG"),
        ("1", "PNG"),
        ("P", "GIF"),
        ("RGB", "WEBP"),
        ("YCbCr", "TIFF"),
    ],
)
def test_common_modes_become_the_rgb_that_pillow_makes_of_them(
    mode: str, kind: str, decoding: ImageDecoding
) -> None:
    data = encode(gradient(mode), kind)
    if mode == "YCbCr" and PIL.__version__.startswith("12."):
        pytest.skip("Pillow 12 cannot read the TIFF files that it writes in YCbCr")
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(load(data, decoding), np.asarray(image.convert("RGB")))


@every_way
@pytest.mark.parametrize(
    "options",
    [
        {"progressive": True},
        {"subsampling": 0},
        {"subsampling": 1},
        {"keep_rgb": True},
        {"restart_marker_blocks": 1},
    ],
)
def test_each_kind_of_jpeg_gives_the_pixels_that_pillow_gives(
    options: dict[str, object], decoding: ImageDecoding
) -> None:
    picture = make_photograph(0, 75, 53)
    data = encode(picture, "JPEG", **options)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(load(data, decoding), np.asarray(image))


@every_way
def test_jpeg_with_more_pictures_behind_it_gives_its_first(decoding: ImageDecoding) -> None:
    first, second = smooth(40, 30), smooth(80, 60)
    data = encode(first, "MPO", save_all=True, append_images=[second], quality=95)
    assert Image.open(io.BytesIO(data)).format == "MPO"
    assert difference(load(data, decoding), np.asarray(first)) < 16


@every_way
@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_animation_gives_its_first_frame(kind: str, decoding: ImageDecoding) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert tuple(load(data, decoding)[0, 0]) == (255, 0, 0)


PHOTOGRAPH = as_jpeg(make_photograph(1, 160, 120))
BROKEN = {
    "not_an_image": b"this is not an image",
    "truncated_image": PHOTOGRAPH[:-1000],
    "corrupt_image": encode(gradient())[:60] + b"\0" * 40 + encode(gradient())[100:],
    "too_many_pixels": encode(Image.new("L", (201, 200))),
    "unsupported_mode": encode(Image.new("F", (4, 4)), "TIFF"),
}


@every_way
@pytest.mark.parametrize("reason", BROKEN)
def test_broken_image_is_rejected_with_its_reason(reason: str, decoding: ImageDecoding) -> None:
    with pytest.raises(SampleRejectedError) as raised:
        load(BROKEN[reason], decoding, to(8, 8), max_pixels=40_000)
    assert raised.value.reason == reason


@every_way
@pytest.mark.parametrize("kept", [2, 100, 400, 1000, 4000, -2])
def test_jpeg_cut_short_is_rejected_wherever_it_is_cut(kept: int, decoding: ImageDecoding) -> None:
    with pytest.raises(SampleRejectedError):
        load(PHOTOGRAPH[:kept], decoding, to(8, 8))


@pytest.mark.parametrize("seed", range(40))
def test_damaged_jpeg_is_taken_or_rejected_for_the_same_reason_in_each_way(seed: int) -> None:
    """What libjpeg-turbo finds odd is Pillow's to judge, and Pillow forgives many a wrong byte."""
    rng = np.random.default_rng(seed)
    data = bytearray(PHOTOGRAPH)
    for place in rng.integers(2, len(data), 3):
        data[place] = rng.integers(256)
    outcomes = []
    for decoding in WAYS:
        try:
            outcomes.append(load(bytes(data), decoding, to(20, 15)).shape)
        except SampleRejectedError as rejection:
            outcomes.append(rejection.reason)
    assert len(set(outcomes)) == 1


@every_way
def test_gigantic_picture_is_rejected_by_its_header_alone(
    decoding: ImageDecoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JPEG that says 65,500 x 65,500: 12.9 GB of pixels, if any were made."""
    data = bytearray(PHOTOGRAPH)
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    limit_inner_pixels(100_000_000)
    monkeypatch.delattr("PIL.ImageFile.ImageFile.load")
    monkeypatch.delattr(module, "decode_jpeg")
    with pytest.raises(SampleRejectedError, match="4290250000 pixels, max_pixels is") as raised:
        load(bytes(data), decoding, to(8, 8))
    assert raised.value.reason == "too_many_pixels"


@pytest.mark.parametrize(
    ("size", "to_size"),
    [
        ((1152, 864), (384, 384)),
        ((864, 1152), (512, 512)),
        ((641, 427), (211, 140)),
        ((2001, 1333), (224, 224)),
        ((300, 400), (384, 384)),
    ],
)
@pytest.mark.parametrize("resample", [1, 2, 3])
def test_photographs_differ_from_exact_by_no_more_than_the_way_allows(
    size: tuple[int, int], to_size: tuple[int, int], resample: int
) -> None:
    data = as_jpeg(make_photograph(3, *size))
    target = to(*to_size, resample=resample)
    exact = load(data, "exact", target)
    assert psnr(load(data, "fine", target), exact) >= 50
    assert psnr(load(data, "fast", target), exact) >= 40


def test_same_bytes_give_the_same_pixels_in_many_threads_at_once() -> None:
    data = [as_jpeg(make_photograph(seed, 300, 200)) for seed in range(4)]
    start = threading.Barrier(8)

    def work(index: int) -> list[bytes]:
        start.wait()
        return [load(data[index % 4], way, to(64, 48)).tobytes() for way in WAYS for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    alone = [
        [load(one, way, to(64, 48)).tobytes() for way in WAYS for _ in range(10)] for one in data
    ]
    assert found == alone + alone


def test_lack_of_memory_is_no_fault_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reject would make the data set depend on the node; memory cannot be made to lack here."""

    def lack(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lack)
    for decoding in WAYS:
        with pytest.raises(MemoryError):
            load(encode(Image.new("RGB", (8, 8))), decoding)
