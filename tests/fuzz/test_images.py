"""Image files with damaged headers: pixels, or a reject with its reason, in bounded memory."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from pipeline.preprocess.images.decode import limit_inner_pixels, read_upright_size
from pipeline.preprocess.images.image_formats import FORMATS
from pipeline.preprocess.images.load_pixels import load_pixels
from pipeline.preprocess.images.resize import Resize
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.stages import ImageDecoding
from tests.fuzz.budget import bounded, examples

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, of what is broken on purpose

REASONS = {
    "not_an_image",
    "truncated_image",
    "corrupt_image",
    "too_many_pixels",
    "unsupported_mode",
}
MAX_PIXELS = 1_000_000
MAX_GROWTH_MB = 256
"""Of resident memory: what Pillow's own limit allows a picture inside of a file, and copies."""
PSD_SIZES = b"\0\3\0\0\0\2\0\0\0\2\0\x08\0\3"
"""3 channels, 2 x 2 pixels, 8 bits, RGB."""


def saved(kind: str, mode: str = "RGB", **options: object) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (16, 24, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def sound_files() -> dict[str, bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a description"
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "hello", zip=True)
    texts.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="6"/>', zip=True)
    second = Image.new("RGB", (24, 16))

    def several() -> dict[str, object]:  # Pillow's MPO leaves its options in the pictures
        return {"save_all": True, "append_images": [second.copy()]}

    icon = {"sizes": [(16, 16)]}
    files = {name: saved(name) for name in FORMATS if name in Image.SAVE}
    return {
        **files,
        "JPEG grey": saved("JPEG", "L", exif=exif),
        "JPEG CMYK": saved("JPEG", "CMYK"),
        "JPEG progressive": saved("JPEG", progressive=True, exif=exif, icc_profile=b"x" * 200),
        "MPO": saved("MPO", **several()),
        "PNG texts": saved("PNG", "RGBA", pnginfo=texts, exif=exif, icc_profile=b"x" * 200),
        "PNG palette": saved("PNG", "P", transparency=0),
        "PNG 1 bit": saved("PNG", "1"),
        "PNG 16 bit": saved("PNG", "I;16"),
        "APNG": saved("PNG", **several()),
        "GIF frames": saved("GIF", "P", **several()),
        "WEBP texts": saved("WEBP", "RGBA", exif=exif, xmp=b"<x/>", icc_profile=b"x" * 200),
        "WEBP frames": saved("WEBP", **several()),
        "AVIF texts": saved("AVIF", "RGBA", exif=exif),
        "TIFF pages": saved("TIFF", **several()),
        "TIFF LZW": saved("TIFF", compression="tiff_lzw", exif=exif),
        "TIFF JPEG": saved("TIFF", compression="jpeg"),
        "TIFF fax": saved("TIFF", "1", compression="group4"),
        "ICO bitmap": saved("ICO", "RGBA", bitmap_format="bmp", **icon),
        "ICO PNG": saved("ICO", "RGBA", **icon),
        "PPM grey": saved("PPM", "L"),
        "PPM text": b"P3\n2 2\n255\n" + b"1 2 3 " * 4,
        "QOI": saved("QOI", "RGBA"),
        "TGA packed": saved("TGA", compression="tga_rle"),
        "SGI": saved("SGI"),
        "PCX palette": saved("PCX", "P"),
        "DDS packed": saved("DDS", "RGBA", pixel_format="DXT5"),
        "EPS": saved("EPS"),
        "ICNS": saved("ICNS", "RGBA"),
        "PDF": saved("PDF"),
        "XBM": saved("XBM", "1"),
        "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
        "GRIB": b"GRIB\0\0\0\1" + bytes(100),
        "BUFR": b"BUFR\0\0\0\1" + bytes(100),
        "HTML": b"<!DOCTYPE html><html></html>",
        "PSD": b"8BPS\0\1"
        + bytes(6)
        + b"\0\3\0\0\0\2\0\0\0\2\0\x08\0\3"
        + bytes(14)
        + b"abcdefghijkl",
    }


FILES = sound_files()
NUMBERS = (0, 1, 2, 7, 8, 255, 256, 4096, 0x7FFF, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1)


def mutated(rng: random.Random, content: bytes) -> bytes:
    """Up to four changes, most of them in the header."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        end = len(changed) if rng.random() < 0.3 else min(len(changed), 120)
        at = rng.randrange(max(1, end))
        how = rng.randrange(8)
        number = rng.choice(NUMBERS)
        if how <= 1:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif how == 2:
            changed[at : at + 4] = number.to_bytes(4, rng.choice(("big", "little")))
        elif how == 3:
            changed[at : at + 2] = (number % 2**16).to_bytes(2, rng.choice(("big", "little")))
        elif how == 4:
            changed[at:at] = rng.randbytes(rng.randint(1, 20))
        elif how == 5:
            del changed[at : at + rng.randint(1, 20)]
        elif how == 6:
            other = FILES[rng.choice(sorted(FILES))]
            changed[at:] = other[rng.randrange(len(other)) :]
        else:
            del changed[at:]
    return bytes(changed)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Fail where the block takes more resident memory than a bound, in any library."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
    before = _status("VmRSS")
    yield
    growth = _status("VmHWM") - before
    assert growth < MAX_GROWTH_MB, f"{growth} MB"


def require_pixels_or_reject(data: bytes, decoding: ImageDecoding) -> bool:
    """Read the size, then decode, as the stage does."""
    rejection = None
    with bounded_memory():
        try:
            size = read_upright_size(data, max_pixels=MAX_PIXELS, name="cat.jpg")
            pixels = load_pixels(
                data,
                target=lambda _width, _height: Resize(width=8, height=8, resample=3),
                decoding=decoding,
                max_pixels=MAX_PIXELS,
                name="cat.jpg",
            )
        except SampleRejectedError as error:
            rejection = error
    if rejection is not None:
        assert rejection.reason in REASONS
        assert str(rejection).startswith("cat.jpg: ")
        assert 10 < len(str(rejection)) < 1000
        return False
    assert size[0] * size[1] <= MAX_PIXELS
    assert pixels.shape == (8, 8, 3)
    return True


@pytest.fixture(autouse=True, scope="module")
def _limit() -> Iterator[None]:
    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        limit_inner_pixels(MAX_PIXELS)
        yield
    Image.MAX_IMAGE_PIXELS = before


@pytest.mark.parametrize("kind", FILES)
def test_each_valid_file_is_accepted_if_its_format_is(kind: str) -> None:
    is_read = kind not in {"EPS", "ICNS", "PDF", "XBM", "HDF5", "GRIB", "BUFR", "HTML"}
    assert require_pixels_or_reject(FILES[kind], "fine") is is_read


@examples(25)
@pytest.mark.parametrize("kind", FILES)
@given(seed=st.integers(0, 2**64))
def test_a_damaged_file_gives_pixels_or_a_reject(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    data = mutated(rng, FILES[kind])
    with bounded():
        require_pixels_or_reject(data, rng.choice(("fine", "exact", "fast")))


@examples(200)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_pixels_or_a_reject(data: bytes) -> None:
    with bounded():
        require_pixels_or_reject(data, "fine")
