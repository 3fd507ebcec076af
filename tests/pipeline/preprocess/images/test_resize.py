"""Resizing by Pillow and by torch, and what Hugging Face's processors make of the same picture."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.photographs import make_photograph
from pipeline.preprocess.images.decode import decode_jpeg
from pipeline.preprocess.images.load_pixels import load_pixels
from pipeline.preprocess.images.resize import Resize, jpeg_denominator, resize_image, resize_pixels
from tests.pipeline.preprocess.pictures import (
    Geometry,
    difference,
    encode,
    fixed_target,
    psnr,
    smooth,
)

SIZES = [(50, 30), (30, 50), (33, 33), (8, 8), (7, 5), (127, 31), (3, 200), (641, 427)]


def load_exactly(data: bytes, geometry: Geometry) -> np.ndarray:
    return load_pixels(
        data,
        target=fixed_target(geometry),
        decoding="exact",
        max_pixels=1_000_000,
        name="x",
    )


def theirs(processor: Any, image: Image.Image) -> np.ndarray:
    """Pixels [height, width, 3] of a Hugging Face processor before it rescales and normalises."""
    found = processor(image, do_rescale=False, do_normalize=False)["pixel_values"][0]
    return np.asarray(found).transpose(1, 2, 0)


@pytest.mark.parametrize("resample", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exact_pixels_equal_those_of_siglips_processor(
    size: tuple[int, int], resample: int, kind: str
) -> None:
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    data = encode(make_photograph(0, *size), kind)
    processor = SiglipImageProcessorPil(size={"height": 24, "width": 17}, resample=resample)
    geometry = Geometry(height=24, width=17, resample=resample, shortest_edge=None)
    expected = theirs(processor, decoded(data))
    assert np.array_equal(load_exactly(data, geometry), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("crop", [(28, 28), (27, 20), (15, 28)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exact_pixels_equal_those_of_clips_processor(
    size: tuple[int, int], crop: tuple[int, int], kind: str
) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    data = encode(make_photograph(0, *size), kind)
    height, width = crop
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": height, "width": width}
    )
    geometry = Geometry(height=height, width=width, resample=3, shortest_edge=28)
    expected = theirs(processor, decoded(data))
    assert np.array_equal(load_exactly(data, geometry), expected)


def decoded(data: bytes) -> Image.Image:
    import io

    return Image.open(io.BytesIO(data)).convert("RGB")


@pytest.mark.parametrize(
    ("size", "to", "by_way"),
    [
        ((1152, 864), (384, 384), {"exact": 1, "fine": 1, "fast": 2}),
        ((1152, 864), (512, 512), {"exact": 1, "fine": 1, "fast": 2}),
        ((4000, 3000), (384, 384), {"exact": 1, "fine": 2, "fast": 4}),
        ((4000, 3000), (100, 100), {"exact": 1, "fine": 8, "fast": 8}),
        ((819, 819), (512, 512), {"exact": 1, "fine": 1, "fast": 1}),
        ((820, 820), (512, 512), {"exact": 1, "fine": 1, "fast": 2}),
        ((8000, 100), (100, 100), {"exact": 1, "fine": 1, "fast": 1}),
    ],
)
def test_jpeg_is_decoded_smaller_only_as_far_as_the_quality_allows(
    size: tuple[int, int], to: tuple[int, int], by_way: dict[Any, int]
) -> None:
    resize = Resize(width=to[0], height=to[1], resample=1)
    assert {way: jpeg_denominator(*size, resize, way) for way in by_way} == by_way


def test_jpeg_is_not_decoded_smaller_for_a_filter_that_picks_single_pixels() -> None:
    nearest = Resize(width=10, height=10, resample=0)
    assert jpeg_denominator(4000, 3000, nearest, "fast") == 1


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    to=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    resample=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 3),
)
def test_torch_resizes_as_pillow_does_but_for_rounding(
    size: tuple[int, int], to: tuple[int, int], resample: int, seed: int
) -> None:
    """Noise that does not overshoot black or white: where it does, the order of passes matters."""
    values = np.random.default_rng(seed).integers(90, 166, (size[1], size[0], 3), dtype=np.uint8)
    resize = Resize(width=to[0], height=to[1], resample=resample)
    exact = resize_image(Image.fromarray(values), resize)
    assert difference(resize_pixels(values, resize, "fine"), exact) <= 2


@pytest.mark.parametrize("resample", [1, 2, 3])
def test_torch_makes_a_page_of_black_and_white_smaller_as_pillow_does(resample: int) -> None:
    """Each edge overshoots, so that the value between the two passes is cut off."""
    page = np.random.default_rng(0).random((864, 1152, 1)) < 0.2
    values = np.where(page, 0, 255).astype(np.uint8).repeat(3, axis=2)
    resize = Resize(width=384, height=384, resample=resample)
    exact = resize_image(Image.fromarray(values), resize)
    assert difference(resize_pixels(values, resize, "fine"), exact) <= 1


@pytest.mark.parametrize("resample", [0, 4, 5])
def test_filter_that_torch_lacks_is_pillows_in_each_way(resample: int) -> None:
    values = np.asarray(make_photograph(2, 60, 40))
    resize = Resize(width=20, height=30, resample=resample, crop=(2, 3, 17, 20))
    exact = resize_image(Image.fromarray(values), resize)
    assert exact.shape == (17, 15, 3)
    for decoding in ("exact", "fine", "fast"):
        assert np.array_equal(resize_pixels(values, resize, decoding), exact)


@pytest.mark.parametrize("size", [(1000, 750), (1001, 751), (1007, 753), (999, 745)])
@pytest.mark.parametrize("denominator", [2, 4, 8])
@pytest.mark.parametrize("resample", [1, 2, 3])
def test_half_a_pixel_at_the_edge_of_a_smaller_jpeg_moves_nothing(
    size: tuple[int, int], denominator: int, resample: int
) -> None:
    """A slope shows a shift: of half a pixel at the far edge, it would be a step of 4."""
    width, height = size
    picture = smooth(width, height)
    data = encode(picture, "JPEG", quality=100, subsampling=0)
    pixels = decode_jpeg(data, width=width, height=height, denominator=denominator)
    assert pixels is not None
    resize = Resize(width=60, height=45, resample=resample)
    extent = (width / denominator, height / denominator)
    exact = resize_image(picture, resize)
    assert psnr(resize_pixels(pixels, resize, "fast", extent=extent), exact) > 50
    assert difference(resize_pixels(pixels, resize, "fast", extent=extent), exact) <= 2


def test_pixels_that_may_not_be_written_are_resized_and_left_alone() -> None:
    values = np.asarray(make_photograph(2, 60, 40))
    assert not values.flags.writeable
    resize = Resize(width=60, height=40, resample=3)
    assert np.array_equal(resize_pixels(values, resize, "fine"), values)


def test_vector_instructions_make_no_difference() -> None:
    """torch chooses its code by the processor it runs on; nodes of a cluster differ."""
    script = textwrap.dedent("""
        import hashlib
        import numpy as np
        from pipeline.preprocess.images.resize import Resize, resize_pixels
        values = np.random.default_rng(0).integers(0, 256, (97, 131, 3), dtype=np.uint8)
        digest = hashlib.sha256()
        for resample in (1, 2, 3):
            for size in ((31, 44), (200, 150)):
                resize = Resize(width=size[0], height=size[1], resample=resample)
                digest.update(resize_pixels(values, resize, "fine").tobytes())
        print(digest.hexdigest())
    """)
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": ":".join(sys.path), "ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for capability in ("default", "avx2")
    }
    assert len(digests) == 1


def test_lack_of_memory_in_torch_is_a_memory_error() -> None:
    """torch says so by a RuntimeError; 100 terabytes are more than the machine maps."""
    resize = Resize(width=2**23, height=2**22, resample=3)
    with pytest.raises(MemoryError, match="allocate memory"):
        resize_pixels(np.zeros((2, 2, 3), np.uint8), resize, "fine")
