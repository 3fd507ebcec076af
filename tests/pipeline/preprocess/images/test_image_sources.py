"""Pictures through `load_pixels`, in each way of decoding, and files that cannot be read."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.preprocess import archives
from pipeline.preprocess.archives import ArchiveChangedError
from pipeline.preprocess.images import image_sources
from pipeline.preprocess.images.image_sources import ImageSource, read_image_bytes
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.manifests.messages import Content


def read(folder: Path, name: str, **options: Path) -> bytes:
    return ImageSource(folder, **options).read(Content(kind="image", value=name))


def reason(folder: Path, name: str, **options: Path) -> tuple[str, str]:
    with pytest.raises(SampleRejectedError) as caught:
        read(folder, name, **options)
    return caught.value.reason, str(caught.value)


def write_files(folder: Path, *names: str, data: bytes = b"file") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


WRITERS = {"tar": write_tar, "zip": write_zip}
MEMBERS = {f"cats/{number}.jpg": os.urandom(3000) for number in range(200)}


def test_files_members_and_bytes_are_read(tmp_path: Path) -> None:
    files = ["a.jpg", "odd::name.jpg", "folder.tar/a.jpg"]
    write_files(tmp_path, *files, "sub/b.jpg")
    write_tar(tmp_path / "sub/t.TAR", {"./x::y.jpg": b"tar"})
    write_zip(tmp_path / "z.zip", {"b/c.jpg": b"zip"})
    names = [*files, "sub/t.TAR::x::y.jpg", "z.zip::b/c.jpg", f"{tmp_path}/z.zip::./b/c.jpg"]
    images = [Content(kind="image", value=name) for name in names]
    images.append(Content(kind="image", value="n", data=b"own"))
    found = list(map(ImageSource(tmp_path).read, images))
    assert found == [b"file"] * 3 + [b"tar", b"zip", b"zip", b"own"]


def test_images_outside_of_the_folder_are_rejected_and_never_opened(tmp_path: Path) -> None:
    lists, pool = tmp_path / "lists", tmp_path / "pool"
    for folder in (lists, pool):
        write_files(folder, "a.jpg", data=folder.name.encode())
        write_tar(folder / "t.tar", {"a.jpg": b"member"})
    outside = ["../pool/a.jpg", f"{pool}/a.jpg", "../pool/t.tar::a.jpg", "/dev/zero", "."]
    for name in outside:
        assert reason(lists, name) == ("image_outside", f"{name}: is outside of {lists}")
    for name in ("file:///etc/passwd", f"file://{lists}/../a.jpg"):
        assert reason(lists, name)[0] == "image_outside"
    assert read(lists, "../lists/a.jpg") == b"lists"
    wider = [read(lists, name, within=tmp_path) for name in outside[:3]]
    assert wider == [b"pool", b"pool", b"member"]
    assert reason(lists, "/dev/zero", within=tmp_path)[0] == "image_outside"
    beside = [read(lists, name, within=pool) for name in ("a.jpg", "../pool/a.jpg")]
    assert beside == [b"lists", b"pool"]


def test_what_is_judged_is_what_is_opened(tmp_path: Path) -> None:
    """Behind a link, `..` would lead to the folder above the link's target."""
    write_files(tmp_path, "lists/b.jpg", "pool/private.jpg", "pool/photos/a.jpg")
    write_tar(tmp_path / "pool/private.tar", {"a.jpg": b"private"})
    (tmp_path / "lists/photos").symlink_to(tmp_path / "pool/photos")
    for name in ("photos/../private.jpg", "photos/../private.tar::a.jpg"):
        assert reason(tmp_path / "lists", name)[0] == "missing_image"
    assert read(tmp_path / "lists", "photos/a.jpg") == b"file"  # links themselves are followed


def test_an_archive_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar")
    (tmp_path / "folder.tar").mkdir()
    for name in ("pipe.tar", "folder.tar"):
        with pytest.raises(StageConfigError, match=rf"{name}: it is not a file"):
            read(tmp_path, f"{name}::a.jpg")


@pytest.mark.parametrize("end", WRITERS)
def test_what_is_wrong_with_one_member_is_the_fault_of_its_row(tmp_path: Path, end: str) -> None:
    path = WRITERS[end](tmp_path / f"a.{end}", {"a.jpg": b"x", "empty.jpg": b""})
    missing, gone = f"{path.name}::b.jpg", f"gone/{path.name}::a.jpg"
    assert reason(tmp_path, missing)[1] == f"{missing}: no such member of the archive"
    assert reason(tmp_path, gone) == ("missing_image", f"{gone}: no such archive")
    assert reason(tmp_path, f"{path.name}::empty.jpg")[0] == "empty_image"
    assert reason(tmp_path, f"a\0b{path.name}::a.jpg")[0] == "missing_image"
    assert reason(tmp_path, "n" * 300 + ".tar::a.jpg")[0] == "missing_image"


def test_folders_and_links_of_a_tar_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.jpg").symlink_to("a.jpg")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name in ("folder", "link.jpg"):
            archive.add(tmp_path / name, name)
    assert reason(tmp_path, "t.tar::folder")[0] == "unreadable_image"
    words = "t.tar::link.jpg: a symbolic link, which is not followed"
    assert reason(tmp_path, "t.tar::link.jpg") == ("unreadable_image", words)


def test_a_member_with_a_wrong_checksum_is_a_reject_and_never_a_picture(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "z.zip", {"a.jpg": bytes(1000), "b.jpg": b"good"})
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF  # within the first member's deflated bytes
    path.write_bytes(data)
    assert reason(tmp_path, "z.zip::a.jpg")[0] == "corrupt_image"
    assert read(tmp_path, "z.zip::b.jpg") == b"good"


@pytest.mark.parametrize("end", WRITERS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_broken_archive_fails_the_stage_without_a_retry(
    tmp_path: Path, end: str, share: float
) -> None:
    path = WRITERS[end](tmp_path / f"a.{end}", MEMBERS)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(StageConfigError, match=rf"{path}: .*no image of it can be trusted"):
        read(tmp_path, f"{path.name}::cats/0.jpg", index_dir=tmp_path / "indexes")
    assert not (tmp_path / "indexes").exists()


def test_a_tar_cut_between_members_is_broken_as_soon_as_one_is_missing(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", {"a.jpg": b"x", "b.jpg": b"y"})
    os.truncate(path, 1024)
    assert read(tmp_path, "t.tar::a.jpg") == b"x"
    with pytest.raises(StageConfigError, match="no end mark: it may be truncated"):
        read(tmp_path, "t.tar::b.jpg")


@pytest.mark.parametrize(("mode", "name"), [("gz", "gzip"), ("xz", "xz"), ("bz2", "bzip2")])
def test_a_compressed_tar_is_refused_with_the_remedy(tmp_path: Path, mode: str, name: str) -> None:
    with tarfile.open(tmp_path / f"t.tar.{mode}", f"w:{mode}") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(StageConfigError, match=rf"compressed as a whole \({name}\).*keep the tar$"):
        read(tmp_path, f"t.tar.{mode}::a.jpg")


def test_a_tar_that_changes_gives_no_other_picture(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", {"a.jpg": b"x" * 600, "b.jpg": b"y" * 600})
    source = ImageSource(tmp_path, index_dir=tmp_path / "indexes")
    image = Content(kind="image", value="t.tar::b.jpg")
    assert source.read(image) == b"y" * 600
    with path.open("r+b") as stream:  # in place: the open archive sees it
        stream.write(write_tar(tmp_path / "new.tar", {"c.jpg": b"z" * 1700}).read_bytes())
    with pytest.raises(ArchiveChangedError, match=r"t\.tar: changed since"):
        source.read(image)
    assert not list((tmp_path / "indexes").iterdir())
    assert read(tmp_path, "t.tar::c.jpg", index_dir=tmp_path / "indexes") == b"z" * 1700


@pytest.mark.parametrize("end", WRITERS)
def test_many_threads_read_many_archives_each_listed_once(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        WRITERS[end](tmp_path / f"{number}.{end}", MEMBERS)
    monkeypatch.setattr(archives, "_MAX_OPEN", 3)  # archives are put away while others read them
    listing = Mock(wraps=getattr(archives, f"list_{end}"))
    monkeypatch.setattr(archives, f"list_{end}", listing)
    source = ImageSource(tmp_path, index_dir=tmp_path / "indexes")
    names = [f"{number % 5}.{end}::cats/{number}.jpg" for number in range(200)] * 5
    images = [Content(kind="image", value=name) for name in names]
    with ThreadPoolExecutor(8) as pool:
        found = [source.read(images[0]), *pool.map(source.read, images[1:])]
    assert found == [*MEMBERS.values()] * 5
    assert len(list((tmp_path / "indexes").iterdir())) == 5
    assert listing.call_count == 5
    assert read(tmp_path, names[0], index_dir=tmp_path / "indexes")
    assert listing.call_count == 5  # that one was in an index


def test_a_damaged_index_is_rebuilt(tmp_path: Path) -> None:
    write_tar(tmp_path / "t.tar", {"a.jpg": b"x"})
    for damage in (b"", b"x" * 10, b"x" * 500, b""):
        assert read(tmp_path, "t.tar::a.jpg", index_dir=tmp_path / "i") == b"x"
        (file,) = (tmp_path / "i").iterdir()
        assert file.stat().st_size > 56
        file.write_bytes(damage)


def test_no_row_is_left_out_by_a_damaged_index(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(4)]
    write_tar(tmp_path / "t.tar", dict.fromkeys(names, b"x" * 600))
    read(tmp_path, "t.tar::0.jpg", index_dir=tmp_path / "i")
    (file,) = (tmp_path / "i").iterdir()
    whole = file.read_bytes()
    for place in range(len(whole) - 4 * 56, len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        source = ImageSource(tmp_path, index_dir=tmp_path / "i")
        for name in names:
            with contextlib.suppress(ArchiveChangedError):
                image = Content(kind="image", value=f"t.tar::{name}")
                assert source.read(image) == b"x" * 600


def test_a_root_that_is_gone_is_no_missing_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "unmounted", "t.tar::a.jpg")


NFC, NFD = "caf\u00e9.jpg", "cafe\u0301.jpg"


@pytest.mark.parametrize(
    ("there", "name"),
    [
        (NFD, NFC),
        (NFC, NFD),
        ("a b.jpg", "file://{root}/a%20b.jpg"),
        ("a.jpg", "file://localhost{root}/a.jpg"),
        ("a.jpg", "./a.jpg"),
    ],
)
def test_a_name_that_can_mean_one_file_alone_is_read(tmp_path: Path, there: str, name: str) -> None:
    write_files(tmp_path, there)
    assert read(tmp_path, name.format(root=tmp_path)) == b"file"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("https://example.org/a.jpg", "https:// is not fetched: download the files"),
        *((f"{name}://bucket/a.jpg", f"{name}:// is not fetched") for name in ("s3", "gs", "hf")),
        (" HTTP://example.org/a.jpg", "http:// is not fetched"),
        ("file://server/a.jpg", "a file:// URL that names a machine"),
        ("~/a.jpg", "`~` is not expanded in a manifest"),
        ("$HOME/a.jpg", "`$` is not expanded in a manifest"),
        ("['sub/a.jpg']", "a list or a tag, not the name of one file"),
        ("sub/a.jpg?raw=1", "it has the end of a URL (`?...`, `#...`); write `sub/a.jpg`"),
        ("A" * 5000, "AAAA...: 5,000 characters, too long for a path"),
        *((f"base64{sign}iVBORw0KGgo", "base64 without its media type") for sign in (",", "://")),
        ("b'\\x89PNG\\r\\n'", "bytes as Python prints them"),
        ("89504e470d0a1a0a0000000d49484452", "hexadecimal: write base64"),
        ("iVBORw0KGgoAAAANSUhEUg...", "base64 of a picture that is cut off or broken"),
        ("sub/b\u00a0c.jpg", "it has a no-break blank; write `sub/b c.jpg`, which is there"),
        ("sub/\u200ba.jpg", "an invisible character or line break; write `sub/a.jpg`, which"),
        ("sub/\na.jpg", "an invisible character or line break; write `sub/a.jpg`, which is"),
        ("C:\\data\\a.jpg", "a path of Windows"),
        ("d:/data/a.jpg", "a path of Windows"),
        ("sub\\a.jpg", "it has backslashes; write `sub/a.jpg`, which is there"),
        ("sub\\gone.jpg", "it has backslashes: write the plain path"),
        ("sub/b%20c.jpg", "it has codes of a URL (`%20`); write `sub/b c.jpg`, which is there"),
        (" sub/a.jpg", "it has blanks or quotes around it; write `sub/a.jpg`, which is there"),
        ('"sub/a.jpg"', "it has blanks or quotes around it; write `sub/a.jpg`, which is there"),
        ("sub/a.jpg\n", "it has blanks or quotes around it; write `sub/a.jpg`, which is there"),
        ("sub/a.JPG", "write `sub/a.jpg`, which is there"),
        ("sub/a.jpeg", "write `sub/a.jpg`, which is there"),
        (" sub\\b%20c.jpg", "around it and backslashes and codes of a URL (`%20`); write `sub/b c"),
    ],
)
def test_a_missing_image_with_a_strange_name_has_a_remedy(
    tmp_path: Path, name: str, words: str
) -> None:
    write_files(tmp_path, "sub/a.jpg", "sub/b c.jpg")
    why, message = reason(tmp_path, name)
    assert why == "missing_image"
    assert words in message


def test_a_remedy_names_no_file_outside(tmp_path: Path) -> None:
    write_files(tmp_path, "a.jpg", "root/b.jpg")
    assert "which is there" not in reason(tmp_path / "root", "..\\a.jpg")[1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.png", "missing_image"),
        ("empty.png/x", "missing_image"),
        ("x" * 300, "missing_image"),
        ("a\0b", "missing_image"),
        ("empty.png", "empty_image"),
        (".", "unreadable_image"),
    ],
)
def test_file_that_cannot_be_read_is_rejected_under_the_manifests_name(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(SampleRejectedError) as raised:
        read_image_bytes(tmp_path / name, name=name, root=tmp_path)
    assert raised.value.reason == reason
    assert str(tmp_path) not in str(raised.value)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_has_no_end_is_rejected_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / kind) if kind != "device" else "/dev/zero"
    if kind == "pipe":
        os.mkfifo(name)
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "socket":
            listener.bind(name)
        with pytest.raises(SampleRejectedError, match="not a file, but a pipe") as raised:
            read_image_bytes(tmp_path / name, name=name, root=tmp_path)
    assert raised.value.reason == "unreadable_image"


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may be read: the tests may run as root, which may read everything."""

    def refuse(path: Path) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(image_sources, "open_at_once", refuse)


def test_file_whose_mode_forbids_it_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").touch(mode=0o200)
    refuse(monkeypatch)
    with pytest.raises(SampleRejectedError, match=r"^a\.png: Permission denied") as raised:
        read_image_bytes(tmp_path / "a.png", name="a.png", root=tmp_path)
    assert raised.value.reason == "unreadable_image"


def test_refusal_that_the_mode_does_not_explain_is_the_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").touch(mode=0o600)
    refuse(monkeypatch)
    with pytest.raises(PermissionError):
        read_image_bytes(tmp_path / "a.png", name="a.png", root=tmp_path)


def test_image_is_not_missing_where_its_root_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_image_bytes(
            tmp_path / "unmounted" / "a.png", name="a.png", root=tmp_path / "unmounted"
        )
