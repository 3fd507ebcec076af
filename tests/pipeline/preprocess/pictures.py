"""Pictures for the tests of decoding, resizing and storing."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.images.load_pixels import load_pixels
from pipeline.preprocess.images.resize import Resize, Target
from slurm_jobs.formats.configs.stages import ImageDecoding


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The bytes of a file of that kind."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def gradient(mode: str = "RGB") -> Image.Image:
    """16 x 16 pixels."""
    pixels = np.arange(16 * 16 * 3, dtype=np.uint32).reshape(16, 16, 3) % 256
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


WAYS: tuple[ImageDecoding, ...] = ("exact", "fine", "fast")
every_way = pytest.mark.parametrize("decoding", WAYS)


def smooth(width: int, height: int) -> Image.Image:
    """Colours that change slowly and differ in each quarter, so that a turned picture shows."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return Image.fromarray(np.stack([255 * x, 255 * y, 255 * x * y], -1).astype(np.uint8))


def as_it_is(width: int, height: int) -> Resize:
    """A target that keeps the size."""
    return Resize(width=width, height=height, resample=3)


def difference(a: np.ndarray, b: np.ndarray) -> int:
    """The greatest, in steps of 255."""
    assert a.shape == b.shape
    return int(np.abs(a.astype(np.int16) - b).max())


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Peak signal to noise ratio in decibels."""
    error = np.mean((a.astype(np.float64) - b) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-12)))


def load(
    data: bytes,
    decoding: ImageDecoding,
    target: Target = as_it_is,
    max_pixels: int = 100_000_000,
) -> np.ndarray:
    """The pixels that `load_pixels` gives."""
    pixels = load_pixels(data, target=target, decoding=decoding, max_pixels=max_pixels, name="x")
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    return pixels


def to(width: int, height: int, resample: int = 3) -> Target:
    """A target of one size."""
    return lambda _width, _height: Resize(width=width, height=height, resample=resample)


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Every picture of one size, as SigLIP's processor makes it, or CLIP's (`shortest_edge`)."""

    height: int
    width: int
    resample: int
    shortest_edge: int | None


def fixed_target(geometry: Geometry) -> Target:
    """The target of a processor that gives every picture one size.

    With `shortest_edge`, the shorter side is resized to it and the middle is cut out, as CLIP's
    image processor does; else both sides are resized.
    """

    def target(width: int, height: int) -> Resize:
        edge = geometry.shortest_edge
        if edge is None:
            return Resize(width=geometry.width, height=geometry.height, resample=geometry.resample)
        long_edge = int(edge * max(width, height) / min(width, height))
        size = (edge, long_edge) if width <= height else (long_edge, edge)
        left, top = (size[0] - geometry.width) // 2, (size[1] - geometry.height) // 2
        return Resize(
            width=size[0],
            height=size[1],
            resample=geometry.resample,
            crop=(left, top, left + geometry.width, top + geometry.height),
        )

    return target
