"""Members of zips, against Python's `zipfile`."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess.archives import (
    BrokenArchiveError,
    DamagedMemberError,
    Kind,
    MemberTable,
    list_zip,
    read_zip_member,
)

METHODS = {zipfile.ZIP_STORED: Kind.FILE, zipfile.ZIP_DEFLATED: Kind.DEFLATED}
NAMES = st.text("ab.é/", min_size=1, max_size=30).filter(
    lambda name: not name.startswith(("/", "./")) and not name.endswith("/")
)


@contextmanager
def opened(data: bytes) -> Iterator[tuple[int, MemberTable]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.fileno(), list_zip(file.fileno())


def zip_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(NAMES, st.tuples(st.binary(max_size=2000), st.sampled_from(list(METHODS)))),
    st.binary(max_size=100),
)
def test_every_member_reads_as_zipfile_reads_it(
    members: dict[str, tuple[bytes, int]], before: bytes
) -> None:
    stream = io.BytesIO()
    stream.write(before)  # as of an archive that unpacks itself
    with zipfile.ZipFile(stream, "a") as archive:
        for name, (data, method) in members.items():
            archive.writestr(name, data, method)
    with opened(stream.getvalue()) as (fd, table):
        assert len(table) == len(members)
        for name, (data, method) in members.items():
            member = table.find(name.encode())
            assert member is not None
            assert member.kind is METHODS[method]
            assert read_zip_member(fd, member) == data


@settings(max_examples=200, deadline=None)
@given(st.integers(0), st.integers(1, 255), st.sampled_from(list(METHODS)))
def test_a_damaged_byte_never_gives_other_bytes(at: int, by: int, method: int) -> None:
    content = os.urandom(300) + b"same" * 50
    data = bytearray(zip_of(("a.png", content), method=method))
    at %= len(data)
    data[at] = (data[at] + by) % 256
    try:
        with opened(bytes(data)) as (fd, table):
            member = table.find(b"a.png")
            if member is not None and member.kind in METHODS.values():
                assert read_zip_member(fd, member) == content
    except (BrokenArchiveError, DamagedMemberError):
        return


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_a_zip_cut_short_is_refused(cut: int) -> None:
    data = zip_of(("a.png", b"x" * 2000), ("b.png", b"y" * 2000))
    refused = pytest.raises(BrokenArchiveError, match="truncated or not a zip")
    with refused, opened(data[: cut % len(data)]):
        pass


def test_folders_links_encrypted_members_and_other_methods_are_known() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("folder/", b"")
        link = zipfile.ZipInfo("link.png")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "a.png")
        archive.writestr("packed.png", b"x", zipfile.ZIP_LZMA)
        archive.writestr("secret.png", b"x")
    data = bytearray(stream.getvalue())
    entry = data.rindex(b"secret.png") - 46
    data[entry + 8] |= 1
    with opened(bytes(data)) as (_, table):
        found = {
            name: member.kind
            for name in ("folder", "link.png", "packed.png", "secret.png")
            if (member := table.find(name.encode())) is not None
        }
    assert found == {
        "folder": Kind.FOLDER,
        "link.png": Kind.SYMBOLIC_LINK,
        "packed.png": Kind.UNKNOWN_METHOD,
        "secret.png": Kind.ENCRYPTED,
    }


def test_a_name_in_utf_8_that_does_not_say_so_is_found() -> None:
    data = zip_of(("é.png", b"x"))
    plain = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        flags = plain.index(mark) + place
        plain[flags : flags + 2] = b"\0\0"
    for archive in (data, bytes(plain)):
        with opened(archive) as (fd, table):
            member = table.find("é.png".encode())
            assert member is not None
            assert read_zip_member(fd, member) == b"x"


def test_a_member_without_a_name_hides_no_other() -> None:
    data = zip_of(("nameless", b"nothing"), ("a.png", b"a")).replace(b"nameless", b"\0ameless")
    with opened(data) as (fd, table):
        member = table.find(b"a.png")
        assert member is not None
        assert read_zip_member(fd, member) == b"a"


def test_a_directory_that_names_more_bytes_than_there_are_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.png", b"a")
        archive.infolist()[0].compress_size = 1 << 63
    with pytest.raises(BrokenArchiveError, match="after its last"), opened(stream.getvalue()):
        pass


def test_a_member_that_states_more_bytes_than_can_be_counted_is_damaged() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", b"a")
        archive.infolist()[0].file_size = (1 << 64) - 1
    with opened(stream.getvalue()) as (fd, table):
        member = table.find(b"a.png")
        assert member is not None
        with pytest.raises(DamagedMemberError):
            read_zip_member(fd, member)
