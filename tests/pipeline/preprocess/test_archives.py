"""Members of tars and zips, against Python's `tarfile` and `zipfile`."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess.archives import (
    DamagedMemberError,
    Kind,
    MemberTable,
    list_tar,
    list_zip,
    read_zip_member,
)
from slurm_jobs.formats.tar_headers import BrokenArchiveError

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
KINDS = {
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.CONTTYPE: Kind.FILE,
    tarfile.DIRTYPE: Kind.FOLDER,
    tarfile.SYMTYPE: Kind.SYMBOLIC_LINK,
    tarfile.FIFOTYPE: Kind.OTHER,
}
TAR_NAMES = st.lists(st.text("ab.é- ", min_size=1, max_size=90), min_size=1, max_size=4).map(
    "/".join
)


def table_of(data: bytes) -> MemberTable:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return list_tar(file.fileno(), len(data))


def without_dots(name: str) -> str:
    while name.startswith("./"):
        name = name.removeprefix("./")
    return name


class Tar:
    """The bytes of an archive, which hypothesis does not print."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@st.composite
def tars(draw: st.DrawFn) -> Tar:
    stream = io.BytesIO()
    form = draw(st.sampled_from(FORMATS))
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for _ in range(draw(st.integers(0, 12))):
            name = draw(TAR_NAMES)
            info = tarfile.TarInfo(name)
            info.type = draw(st.sampled_from(list(KINDS)))
            data = draw(st.binary(max_size=1500)) if KINDS[info.type] is Kind.FILE else b""
            info.size = len(data)
            info.linkname = draw(TAR_NAMES) if info.type == tarfile.SYMTYPE else ""
            info.mtime = draw(st.sampled_from([0, 1.5, 8**11]))
            try:
                archive.addfile(info, io.BytesIO(data))
            except ValueError:
                assert form == tarfile.USTAR_FORMAT  # too long, or no number of that size
    return Tar(stream.getvalue())


@settings(max_examples=300, deadline=None)
@given(tars())
def test_members_are_those_that_tarfile_finds(archive: Tar) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.data)) as opened:
        last = {without_dots(info.name): info for info in opened}
    table = table_of(archive.data)
    assert len(table) == len(last)
    for name, info in last.items():
        member = table.find(name.encode("utf-8", "surrogateescape"))
        assert member is not None
        assert member.kind is KINDS[info.type]
        if member.kind is Kind.FILE:
            assert (member.offset, member.num_bytes) == (info.offset_data, info.size)


@settings(max_examples=100, deadline=None)
@given(tars(), st.data())
def test_a_truncated_tar_is_refused_or_has_no_end_mark(archive: Tar, data: st.DataObject) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.data)) as opened:
        end = max((info.offset_data + info.size for info in opened), default=0)
    try:
        table = table_of(archive.data[: data.draw(st.integers(0, end))])
    except BrokenArchiveError:
        return
    assert not table.has_end


@settings(max_examples=100, deadline=None)
@given(tars(), st.integers(0, 511), st.integers(1, 255))
def test_a_header_with_another_byte_is_refused(archive: Tar, at: int, by: int) -> None:
    data = bytearray(archive.data)
    if not any(data[:512]):
        return
    data[at] = (data[at] + by) % 256
    try:
        if 148 <= at < 156 and tarfile.nti(data[148:156]) == tarfile.nti(archive.data[148:156]):
            return  # the same checksum, written differently
    except tarfile.TarError:
        pass
    with pytest.raises(BrokenArchiveError):
        table_of(bytes(data))


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **values: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in values.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(data))


def test_last_member_of_a_name_counts_and_a_hard_link_is_its_target() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        add(archive, "././a.png", b"oldest")
        add(archive, "./a.png", b"old")
        add(archive, "a.png", b"newer")
        add(archive, "link.png", type=tarfile.LNKTYPE, linkname="./a.png")
        add(archive, "dead.png", type=tarfile.LNKTYPE, linkname="gone.png")
    table = table_of(stream.getvalue())
    by_name, by_link = table.find(b"a.png"), table.find(b"./link.png")
    assert by_name is not None
    assert (by_name.num_bytes, by_link) == (5, by_name)
    assert table.find(b"dead.png") is None
    assert len(table) == 2


def test_a_hard_link_is_what_its_target_was_then_as_unpacking_leaves_it(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        add(archive, "b", b"b")
        add(archive, "a", type=tarfile.LNKTYPE, linkname="b")
        add(archive, "b", b"newer")  # as `tar -r` appends it
        add(archive, "of_link", type=tarfile.LNKTYPE, linkname="a")
        add(archive, "no_link_now", type=tarfile.LNKTYPE, linkname="b")
        add(archive, "no_link_now", b"file")
    data = (tmp_path / "t.tar").read_bytes()
    table = table_of(data)
    subprocess.run(["tar", "-xf", "t.tar"], cwd=tmp_path, check=True)
    for name in ("a", "b", "of_link", "no_link_now"):
        found = table.find(name.encode())
        assert found is not None
        content = data[found.offset : found.offset + found.num_bytes]
        assert content == (tmp_path / name).read_bytes(), name


def test_size_beyond_octal_digits_is_read() -> None:
    header = tarfile.TarInfo("huge.png")
    header.size = 8**11 + 5
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        head = header.tobuf(form)
        size = len(head) + header.size + (-header.size % 512)
        with tempfile.TemporaryFile() as file:
            file.write(head)
            file.truncate(size)  # a hole, which takes no space
            member = list_tar(file.fileno(), size).find(b"huge.png")
            assert member is not None
            assert (member.num_bytes, member.offset) == (header.size, len(head))


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.REGTYPE])
def test_a_size_that_no_file_has_is_refused(kind: bytes) -> None:
    header = tarfile.TarInfo("cats")
    header.type = kind
    head = bytearray(header.tobuf(tarfile.USTAR_FORMAT))
    head[124:136] = b"\x80" + (2**64).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    with pytest.raises(BrokenArchiveError, match="no tar header at byte 0"):
        table_of(bytes(head) + bytes(1024))


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_members_of_gnu_tar_are_known_and_hide_no_other(tmp_path: Path, form: str) -> None:
    assert shutil.which("tar"), "GNU tar is part of every system that this is tested on"
    with (tmp_path / "holes.png").open("wb") as file:
        for place in range(40):  # more pieces than the first header has room for
            file.seek(place * 65536)
            file.write(b"x" * 4096)
    (tmp_path / "plain.png").write_bytes(b"plain")
    command = ["tar", "-S", f"--format={form}", "-cf", "t.tar", "holes.png", "plain.png"]
    subprocess.run(command, cwd=tmp_path, check=True)
    table = table_of((tmp_path / "t.tar").read_bytes())
    sparse, plain = table.find(b"holes.png"), table.find(b"plain.png")
    assert sparse is not None
    assert plain is not None
    assert (sparse.kind, plain.kind, plain.num_bytes) == (Kind.SPARSE, Kind.FILE, 5)


def test_names_longer_than_a_header_written_by_gnu_tar_are_found(tmp_path: Path) -> None:
    name = "/".join(["folder" * 20] * 3) + "/é.png"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"far")
    for form in ("gnu", "pax"):
        command = ["tar", f"--format={form}", "-cf", f"{form}.tar", "folder" * 20]
        subprocess.run(command, cwd=tmp_path, check=True)
        member = table_of((tmp_path / f"{form}.tar").read_bytes()).find(name.encode())
        assert member is not None
        assert member.num_bytes == 3


@pytest.mark.parametrize("data", [b"", b"hello\n" * 200, bytes(range(256)) * 8])
def test_what_is_no_tar_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenArchiveError):
        table_of(data)


@pytest.mark.parametrize("length", [b"0", b"1", b"\xff"])
def test_a_damaged_pax_record_ends_the_list_of_members(length: bytes) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, "n" * 200)
    data = stream.getvalue()
    record = data[512 : data.index(b" path=")]
    damaged = data.replace(record + b" path=", length.rjust(len(record), b"0") + b" path=", 1)
    assert damaged != data
    # `tarfile` of older patch releases of Python passes over the damaged record
    with contextlib.suppress(BrokenArchiveError):
        assert table_of(damaged).find(b"n" * 200) is None


METHODS = {zipfile.ZIP_STORED: Kind.FILE, zipfile.ZIP_DEFLATED: Kind.DEFLATED}
ZIP_NAMES = st.text("ab.é/", min_size=1, max_size=30).filter(
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
    st.dictionaries(ZIP_NAMES, st.tuples(st.binary(max_size=2000), st.sampled_from(list(METHODS)))),
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
