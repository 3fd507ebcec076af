"""Samples as members of a tar: packed, read back, and damaged."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from pipeline.data.disk_format.sample_members import (
    decode_stored_image,
    pack_sample,
    unpack_sample,
    view_npy,
)
from pipeline.data.disk_format.tar_format import sample_bytes


@pytest.mark.parametrize(
    "header",
    [b"{(", b"7", b"{}", b"{'descr': 'none', 'shape': (1,), 'fortran_order': False}"],
)
def test_npy_with_a_damaged_header_is_an_error(header: bytes) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(ValueError, match="damaged header"):
        view_npy(memoryview(data))


def test_sample_reads_back_as_it_was_packed() -> None:
    ids, labels = np.arange(5, dtype=np.int32), np.full(5, -100, dtype=np.int32)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    stream = io.BytesIO()
    np.save(stream, pixels)
    data = pack_sample(
        key="000000007",
        input_ids=ids,
        labels=labels,
        images=[stream.getvalue()] * 2,
        image_suffix="npy",
        meta={"row": 7},
    )
    sample = unpack_sample(memoryview(data))
    assert (sample.key, sample.meta) == ("000000007", {"row": 7})
    assert np.array_equal(sample.input_ids, ids)
    assert np.array_equal(sample.labels, labels)
    assert [np.array_equal(image, pixels) for image in sample.images] == [True, True]
    assert not sample.images[0].flags.owndata  # a view: nothing was copied


def test_meta_that_is_no_json_is_named_when_it_is_read() -> None:
    tokens = io.BytesIO()
    np.save(tokens, np.zeros((2, 1), dtype=np.int32))
    data = sample_bytes("k", [("tokens.npy", tokens.getvalue()), ("meta.json", b"{")])
    sample = unpack_sample(memoryview(data))
    with pytest.raises(ValueError, match=r"k\.meta\.json: no valid JSON"):
        dict(sample.meta)


def test_sample_without_meta_has_none() -> None:
    tokens = io.BytesIO()
    np.save(tokens, np.zeros((2, 1), dtype=np.int32))
    assert (
        unpack_sample(memoryview(sample_bytes("k", [("tokens.npy", tokens.getvalue())]))).meta == {}
    )


def test_a_shard_from_elsewhere_cannot_choose_another_decoder() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    with pytest.raises(UnidentifiedImageError):
        decode_stored_image(memoryview(postscript), "image0.png")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_stored_image_of_billions_of_pixels_is_not_decoded(kind):
    """Shards may be a stranger's, too."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, kind)
    data = bytearray(stream.getvalue())
    if kind == "JPEG":
        place = data.find(b"\xff\xc0") + 5
        data[place : place + 4] = struct.pack(">HH", 60_000, 60_000)
    elif kind == "PNG":
        data[16:24] = struct.pack(">II", 60_000, 60_000)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    else:
        place = data.find(b"\x9d\x01\x2a") + 3
        data[place : place + 4] = struct.pack("<HH", 16_383, 16_383)
    suffix = {"JPEG": "image0.jpg", "PNG": "image0.png", "WEBP": "image0.webp"}[kind]
    with pytest.raises(ValueError, match=r"pixels|decompression bomb"):
        decode_stored_image(memoryview(bytes(data)), suffix)
