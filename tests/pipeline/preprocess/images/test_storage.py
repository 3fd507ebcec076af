"""Pixels into each format and back as training reads them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.photographs import make_photograph
from pipeline.data.disk_format.sample_members import decode_stored_image
from pipeline.preprocess.images.storage import MEMBER_SUFFIX, image_to_bytes, mean_price, price_of
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.stages import ImageFormat
from tests.pipeline.preprocess.pictures import psnr

PIXELS = np.asarray(make_photograph(0, 160, 121))


def read_back(data: bytes, image_format: ImageFormat) -> np.ndarray:
    return decode_stored_image(memoryview(data), f"image0.{MEMBER_SUFFIX[image_format]}")


@pytest.mark.parametrize("image_format", ["png", "webp_lossless", "raw"])
@pytest.mark.parametrize("kind", ["photograph", "noise", "page"])
def test_lossless_formats_keep_every_pixel(image_format: ImageFormat, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (37, 41, 3), dtype=np.uint8)
    page = np.where(noise[..., :1] < 40, 0, 255).astype(np.uint8).repeat(3, axis=2)
    pixels = {"photograph": PIXELS, "noise": noise, "page": page}[kind]
    data = image_to_bytes(pixels, image_format, 1)
    assert data == image_to_bytes(pixels.copy(), image_format, 95)
    assert np.array_equal(read_back(data, image_format), pixels)


@pytest.mark.parametrize("image_format", ["jpeg", "webp"])
def test_lossy_formats_lose_less_the_higher_the_quality(image_format: ImageFormat) -> None:
    sizes, losses = [], []
    for quality in (50, 80, 95):
        data = image_to_bytes(PIXELS, image_format, quality)
        assert data == image_to_bytes(PIXELS.copy(), image_format, quality)
        sizes.append(len(data))
        losses.append(psnr(read_back(data, image_format), PIXELS))
    assert sizes == sorted(sizes)
    assert losses == sorted(losses)
    assert losses[-1] > 36


@pytest.mark.parametrize("quality", [30, 75, 95, 100])
def test_stored_jpeg_is_read_back_as_pillow_reads_it(quality: int) -> None:
    data = image_to_bytes(PIXELS, "jpeg", quality)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(read_back(data, "jpeg"), np.asarray(image))


@pytest.mark.parametrize("image_format", ["jpeg", "webp", "webp_lossless"])
@pytest.mark.parametrize("shape", [(2, 70_000, 3), (70_000, 2, 3)])
def test_picture_longer_than_the_format_can_say_is_rejected(
    image_format: ImageFormat, shape: tuple[int, ...]
) -> None:
    pixels = np.zeros(shape, np.uint8)
    with pytest.raises(
        SampleRejectedError, match=r"^a\.png: .*70000.* png and raw allow more"
    ) as e:
        image_to_bytes(pixels, image_format, 95, "a.png")
    assert e.value.reason == "too_many_pixels"
    assert np.array_equal(read_back(image_to_bytes(pixels, "png", 95), "png"), pixels)


@pytest.mark.parametrize(("image_format", "most"), [("jpeg", 65_500), ("webp_lossless", 16_383)])
def test_longest_picture_that_the_format_can_say_is_stored(
    image_format: ImageFormat, most: int
) -> None:
    pixels = np.full((2, most, 3), 40, np.uint8)
    data = image_to_bytes(pixels, image_format, 95)
    assert np.array_equal(read_back(data, image_format), pixels)


def test_the_cost_has_bytes_and_loss_as_read_back() -> None:
    data = image_to_bytes(PIXELS, "jpeg", 90)
    price = mean_price([price_of(PIXELS, data, "jpeg")])
    assert price["bytes"] == len(data)
    assert price["psnr_db"] == pytest.approx(psnr(read_back(data, "jpeg"), PIXELS), abs=0.06)
    assert price["decode_ms"] > 0
    kept = mean_price([price_of(PIXELS, image_to_bytes(PIXELS, "png", 90), "png")])
    assert kept["psnr_db"] is None
