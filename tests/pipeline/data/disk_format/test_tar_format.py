"""The tar bytes of samples."""

from __future__ import annotations

import io
import itertools
import tarfile

import numpy as np
import pytest

from pipeline.data.disk_format.sample_members import pack_sample, unpack_sample, view_npy
from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE, sample_bytes, scan_members

MEMBERS = [("a.bin", b"x" * 513), ("b.bin", b""), ("c.bin", b"y" * 512)]


def test_python_tarfile_reads_the_members() -> None:
    data = sample_bytes("k", MEMBERS) + END_OF_ARCHIVE
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = [(member.name, archive.extractfile(member).read()) for member in archive]
    assert found == [(f"k.{suffix}", content) for suffix, content in MEMBERS]


def test_scan_finds_what_was_written() -> None:
    data = memoryview(sample_bytes("k", MEMBERS) + END_OF_ARCHIVE)
    found = [(m.name, bytes(data[m.start : m.start + m.num_bytes])) for m in scan_members(data)]
    assert found == [(f"k.{suffix}", content) for suffix, content in MEMBERS]


def test_member_cut_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="cut short"):
        list(scan_members(memoryview(sample_bytes("k", MEMBERS)[:700])))


def test_member_of_negative_size_is_an_error_and_not_read_for_ever() -> None:
    data = bytearray(sample_bytes("k", MEMBERS))
    data[124:136] = b"-0000001000\0"  # back to its own header
    with pytest.raises(ValueError, match="a member of -512 bytes at byte 0"):
        list(itertools.islice(scan_members(memoryview(data)), 100))


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
