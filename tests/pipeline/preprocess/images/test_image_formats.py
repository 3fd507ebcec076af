"""Which files are read as images, by their content, and what the others are called."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import zipfile
import zlib
from typing import NoReturn

import pytest
from PIL import Image

from pipeline.preprocess.images.decode import decode_upright, open_image, read_upright_size
from pipeline.preprocess.images.image_formats import FORMATS
from pipeline.preprocess.rejects import SampleRejectedError
from tests.pipeline.preprocess.pictures import encode, gradient

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


def zip_file() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.png", encode(gradient()))
    return stream.getvalue()


FOREIGN = {
    "EPS": EPS,
    "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "WMF": b"\xd7\xcd\xc6\x9a" + bytes(40),
    "EMF": b"\1\0\0\0" + bytes(36) + b" EMF" + bytes(40),
    "SVG": b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(20),
    "JPEG XL": b"\xff\x0a" + bytes(20),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(40),
    "GRIB": b"GRIB\0\0\0\1" + bytes(40),
    "BUFR": b"BUFR\0\0\0\4" + bytes(40),
    "FITS": b"SIMPLE  =                    T" + bytes(50),
    "ICNS": encode(gradient().resize((16, 16)), "ICNS"),
    "CUR": b"\0\0\2\0\1\0" + bytes(60),
    "HTML": b"<!DOCTYPE html>\n<html><body>404</body></html>",
    "XML": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "JSON": b'{"error": "rate limit"}',
    "gzip": gzip.compress(encode(gradient())),
    "zip": zip_file(),
    "MP4": b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41",
    "WebM": b"\x1a\x45\xdf\xa3" + bytes(20),
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "zero bytes": bytes(5000),
    "base64": b"iVBORw0KGgoAAAANSUhEUgAAABAAAAAQ",
    "IM": b"Image type: RGB image\r\nName: a\r\n" + bytes(600),
    "PCD": bytes(2048) + b"PCD_IPI" + bytes(2000),
    "EPS or PostScript": b"\xef\xbb\xbf\n" + EPS,
    r"begins with b'Not found'\); convert it": b"Not found",
    "XBM": b"#define a_width 8\n#define a_height 1\nstatic char a_bits[] = {0x00};\n",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_kind_is_rejected_by_its_name(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content decides, and no program is started for it."""

    def start(*_args: object, **_options: object) -> NoReturn:
        pytest.fail("a program was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr("os.system", start)
    with pytest.raises(SampleRejectedError, match=kind) as raised:
        read_upright_size(FOREIGN[kind], max_pixels=10_000, name="cat.jpg")
    assert raised.value.reason == "not_an_image"
    assert str(raised.value).startswith("cat.jpg: ")


def test_no_format_that_is_read_starts_a_program_or_lacks_a_decoder() -> None:
    Image.init()
    refused = {"EPS", "WMF", "BUFR", "GRIB", "HDF5", "FITS", "MPEG", "IPTC", "ICNS"}
    assert set(FORMATS) <= set(Image.OPEN)
    assert not refused & set(FORMATS)


@pytest.mark.parametrize("kind", [name for name in FORMATS if name in Image.SAVE])
def test_each_format_is_read_whatever_the_file_is_called(kind: str) -> None:
    data = encode(gradient(), kind)
    upright = decode_upright(open_image(data, max_pixels=10_000, name="cat.eps"), "cat.eps")
    assert (upright.mode, upright.size) == ("RGB", (16, 16))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_a_header_cut_short_is_a_broken_file_of_its_format(kind: str) -> None:
    with pytest.raises(SampleRejectedError) as raised:
        open_image(encode(gradient(), kind)[:16], max_pixels=10_000, name="x")
    assert raised.value.reason in {"corrupt_image", "truncated_image"}


def white_png(width: int, height: int) -> bytes:
    """A PNG of few bytes: a thousandth of what its pixels take."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(4 * width + 1)) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def icon_of(inner: bytes, num_entries: int = 1) -> bytes:
    """An .ico whose directory says 256 x 256, of a picture that says another size."""
    start = 6 + 16 * num_entries
    entry = struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, len(inner), start)
    return struct.pack("<HHH", 0, 1, num_entries) + entry * num_entries + inner


def test_an_icon_with_a_huge_picture_is_rejected_and_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("PIL.ImageFile.ImageFile.load")
    with pytest.raises(SampleRejectedError, match="a picture of 1100 x 1000") as raised:
        open_image(icon_of(white_png(1100, 1000)), max_pixels=100_000_000, name="a.ico")
    assert raised.value.reason == "too_many_pixels"


def test_an_icon_as_windows_shows_it_is_read() -> None:
    data = encode(gradient().resize((256, 256)), "ICO")
    image = open_image(data, max_pixels=100_000, name="a.ico")
    assert decode_upright(image, "a.ico").size == (256, 256)
