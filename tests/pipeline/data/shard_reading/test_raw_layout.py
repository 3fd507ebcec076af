"""Arrays taken from their places, without a look at tar headers."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.disk_format.sample_members import Sample, pack_sample, unpack_sample
from pipeline.data.disk_format.tar_format import sample_bytes
from pipeline.data.shard_reading.raw_layout import RawLayout, raw_layout

SHAPE = (5, 7, 3)


def layout() -> RawLayout:
    found = raw_layout(SHAPE)
    assert found is not None
    return found


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def stored(
    num_tokens: int, num_images: int, shape: tuple[int, ...] = SHAPE, **meta: object
) -> memoryview:
    draw = np.random.default_rng(num_tokens)
    images = [draw.integers(0, 256, shape, dtype=np.uint8) for _ in range(num_images)]
    ids = np.arange(num_tokens, dtype=np.int32)
    data = pack_sample(
        key="000000007",
        input_ids=ids,
        labels=ids - 100,
        images=[npy(image) for image in images],
        image_suffix="npy",
        meta=meta,
    )
    return memoryview(data)


def assert_same(found: Sample, expected: Sample) -> None:
    assert found.key == expected.key
    assert found.input_ids.tolist() == expected.input_ids.tolist()
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.input_ids.dtype == expected.input_ids.dtype
    assert [image.tolist() for image in found.images] == [i.tolist() for i in expected.images]
    assert found.meta == expected.meta


@given(
    num_tokens=st.integers(0, 700),
    num_images=st.integers(0, 4),
    source=st.text(max_size=900),
)
def test_what_is_taken_is_what_the_headers_say(
    num_tokens: int, num_images: int, source: str
) -> None:
    data = stored(num_tokens, num_images, source=source)
    assert layout().fits(data, num_tokens, num_images)
    found = layout().unpack(data, key="000000007", num_tokens=num_tokens, num_images=num_images)
    assert_same(found, unpack_sample(data))
    assert not any(image.flags.owndata or image.flags.writeable for image in found.images)


def test_other_sizes_do_not_fit() -> None:
    data = stored(10, 2)
    assert layout().fits(data, 10, 2)
    for num_tokens, num_images in ((9, 2), (11, 2), (10, 1), (10, 3), (100_000, 2), (10, 100)):
        assert num_images == 1 or not layout().fits(data, num_tokens, num_images)
    assert not layout().fits(stored(10, 1, shape=(7, 5, 3)), 10, 1)
    assert not layout().fits(memoryview(b""), 10, 1)


def test_members_in_another_order_do_not_fit() -> None:
    tokens = npy(np.zeros((2, 4), dtype=np.int32))
    image = npy(np.zeros(SHAPE, dtype=np.uint8))
    meta = json.dumps({}).encode()
    first = sample_bytes("k", [("meta.json", meta), ("tokens.npy", tokens), ("image0.npy", image)])
    last = sample_bytes("k", [("tokens.npy", tokens), ("image0.npy", image), ("meta.json", meta)])
    for data in (first, last):
        assert not layout().fits(memoryview(data), 4, 1)


def test_tokens_of_another_type_do_not_fit() -> None:
    tokens = npy(np.zeros((4, 2), dtype=np.int32))
    data = sample_bytes("k", [("tokens.npy", tokens)])
    assert not layout().fits(memoryview(data), 4, 0)
    garbage = b"\x93NUMPY\x01\x00v\x00" + b"}" * 118 + bytes(32)
    data = sample_bytes("k", [("tokens.npy", garbage)])
    assert not layout().fits(memoryview(data), 4, 0)


@pytest.mark.parametrize("shape", [(1, 1, 3), (384, 384, 3), (100_000, 100_000, 3)])
def test_header_is_the_one_that_numpy_writes(shape: tuple[int, int, int]) -> None:
    found = raw_layout(shape)
    assert found is not None
    small = np.lib.stride_tricks.as_strided(np.zeros(3, dtype=np.uint8), (1, 1, 3))
    assert len(npy(small)) - 3 == len(found.image_header) == 128
    assert str(shape).encode() in found.image_header
