"""The tar bytes of samples."""

from __future__ import annotations

import io
import itertools
import tarfile

import pytest

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
