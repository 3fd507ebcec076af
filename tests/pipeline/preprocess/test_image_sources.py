"""Images from files, members of archives, and bytes of the manifest."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.preprocess import archives
from pipeline.preprocess.archives import ArchiveChangedError
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.preprocess.row_images import ImageSource
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.manifests.messages import Content


def image(name: str, data: bytes | None = None) -> Content:
    return Content(kind="image", value=name, data=data)


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


MEMBERS = {f"cats/{number}.jpg": os.urandom(3000) for number in range(200)}


def reason(source: ImageSource, name: str) -> tuple[str, str]:
    with pytest.raises(SampleRejectedError) as caught:
        source.read(image(name))
    return caught.value.reason, str(caught.value)


def test_files_members_and_bytes_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"file")
    (tmp_path / "sub").mkdir()
    write_tar(tmp_path / "sub/t.TAR", {"./x::y.jpg": b"tar"})
    write_zip(tmp_path / "z.zip", {"b/c.jpg": b"zip"})
    source = ImageSource(tmp_path)
    images = [
        image("a.jpg"),
        image("sub/t.TAR::x::y.jpg"),
        image("z.zip::b/c.jpg"),
        image("n", b"own"),
    ]
    assert [source.read(item) for item in images] == [b"file", b"tar", b"zip", b"own"]
    assert source.read(image(f"{tmp_path}/z.zip::./b/c.jpg")) == b"zip"


def test_images_outside_of_the_folder_are_rejected_and_never_opened(tmp_path: Path) -> None:
    for folder in ("lists", "pool"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jpg").write_bytes(folder.encode())
        write_tar(tmp_path / folder / "t.tar", {"a.jpg": b"member"})
    source = ImageSource(tmp_path / "lists")
    outside = ["../pool/a.jpg", f"{tmp_path}/pool/a.jpg", "../pool/t.tar::a.jpg", "/dev/zero", "."]
    assert [reason(source, name) for name in outside] == [
        ("image_outside", f"{name}: is outside of {tmp_path}/lists") for name in outside
    ]
    assert source.read(image("../lists/a.jpg")) == b"lists"
    wider = ImageSource(tmp_path / "lists", within=tmp_path)
    assert [wider.read(image(name)) for name in outside[:3]] == [b"pool", b"pool", b"member"]
    assert reason(wider, "/dev/zero")[0] == "image_outside"
    beside = ImageSource(tmp_path / "lists", within=tmp_path / "pool")
    assert beside.read(image("a.jpg")) == b"lists"
    assert beside.read(image("../pool/a.jpg")) == b"pool"


def test_what_is_judged_is_what_is_opened(tmp_path: Path) -> None:
    """Behind a link, `..` would lead to the folder above the link's target."""
    for folder in ("lists", "pool/photos"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pool/private.jpg").write_bytes(b"private")
    write_tar(tmp_path / "pool/private.tar", {"a.jpg": b"private"})
    (tmp_path / "lists/photos").symlink_to(tmp_path / "pool/photos")
    source = ImageSource(tmp_path / "lists")
    for name in ("photos/../private.jpg", "photos/../private.tar::a.jpg"):
        assert reason(source, name)[0] == "missing_image"


def test_links_in_the_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"blob")
    (tmp_path / "lists/a.jpg").symlink_to("../a.jpg")
    assert ImageSource(tmp_path / "lists").read(image("a.jpg")) == b"blob"


def test_the_name_alone_says_that_it_is_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "odd::name.jpg").write_bytes(b"file")
    (tmp_path / "t.tar").mkdir()
    (tmp_path / "t.tar" / "a.jpg").write_bytes(b"file")
    source = ImageSource(tmp_path)
    assert source.read(image("odd::name.jpg")) == b"file"
    assert source.read(image("t.tar/a.jpg")) == b"file"
    with pytest.raises(StageConfigError, match=r"t\.tar: it is not a file"):
        source.read(image("t.tar::a.jpg"))


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_what_is_wrong_with_one_member_is_the_fault_of_its_row(tmp_path: Path, write) -> None:
    path = write(tmp_path / f"a.{write.__name__[-3:]}", {"a.jpg": b"x", "empty.jpg": b""})
    source = ImageSource(tmp_path)
    assert reason(source, f"{path.name}::b.jpg") == (
        "missing_image",
        f"{path.name}::b.jpg: no such member of the archive",
    )
    assert reason(source, f"{path.name}::empty.jpg")[0] == "empty_image"
    assert reason(source, f"gone/{path.name}::a.jpg") == (
        "missing_image",
        f"gone/{path.name}::a.jpg: no such archive",
    )
    assert reason(source, f"a\0b{path.name}::a.jpg")[0] == "missing_image"
    assert reason(source, "n" * 300 + ".tar::a.jpg")[0] == "missing_image"


def test_folders_and_links_of_a_tar_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.jpg").symlink_to("a.jpg")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.add(tmp_path / "folder", "folder")
        archive.add(tmp_path / "link.jpg", "link.jpg")
    source = ImageSource(tmp_path)
    assert reason(source, "t.tar::folder")[0] == "unreadable_image"
    words = "t.tar::link.jpg: a symbolic link, which is not followed"
    assert reason(source, "t.tar::link.jpg") == ("unreadable_image", words)


def test_a_member_with_a_wrong_checksum_is_a_reject_and_never_a_picture(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "z.zip", {"a.jpg": bytes(1000), "b.jpg": b"good"})
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF  # within the first member's deflated bytes
    path.write_bytes(data)
    source = ImageSource(tmp_path)
    assert reason(source, "z.zip::a.jpg")[0] == "corrupt_image"
    assert source.read(image("z.zip::b.jpg")) == b"good"


@pytest.mark.parametrize("write", [write_tar, write_zip])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_broken_archive_fails_the_stage_without_a_retry(
    tmp_path: Path, write, share: float
) -> None:
    path = write(tmp_path / f"a.{write.__name__[-3:]}", MEMBERS)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(StageConfigError, match=rf"{path}: .*no image of it can be trusted"):
        ImageSource(tmp_path, index_dir=tmp_path / "indexes").read(
            image(f"{path.name}::cats/0.jpg")
        )
    assert not (tmp_path / "indexes").exists()


def test_a_tar_cut_between_members_is_broken_as_soon_as_one_is_missing(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", {"a.jpg": b"x", "b.jpg": b"y"})
    os.truncate(path, 1024)
    source = ImageSource(tmp_path)
    assert source.read(image("t.tar::a.jpg")) == b"x"
    with pytest.raises(StageConfigError, match="no end mark: it may be truncated"):
        source.read(image("t.tar::b.jpg"))


@pytest.mark.parametrize(("mode", "name"), [("gz", "gzip"), ("xz", "xz"), ("bz2", "bzip2")])
def test_a_compressed_tar_is_refused_with_the_remedy(tmp_path: Path, mode: str, name: str) -> None:
    with tarfile.open(tmp_path / f"t.tar.{mode}", f"w:{mode}") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(StageConfigError, match=rf"compressed as a whole \({name}\).*keep the tar$"):
        ImageSource(tmp_path).read(image(f"t.tar.{mode}::a.jpg"))


def test_a_tar_that_changes_gives_no_other_picture(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", {"a.jpg": b"x" * 600, "b.jpg": b"y" * 600})
    source = ImageSource(tmp_path, index_dir=tmp_path / "indexes")
    assert source.read(image("t.tar::b.jpg")) == b"y" * 600
    with path.open("r+b") as stream:  # in place: the open archive sees it
        stream.write(write_tar(tmp_path / "new.tar", {"c.jpg": b"z" * 1700}).read_bytes())
    with pytest.raises(ArchiveChangedError, match=r"t\.tar: changed since"):
        source.read(image("t.tar::b.jpg"))
    assert not list((tmp_path / "indexes").iterdir())
    again = ImageSource(tmp_path, index_dir=tmp_path / "indexes")
    assert again.read(image("t.tar::c.jpg")) == b"z" * 1700


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_many_threads_read_many_archives_each_listed_once(
    tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = write.__name__[-3:]
    for number in range(5):
        write(tmp_path / f"{number}.{end}", MEMBERS)
    monkeypatch.setattr(archives, "_MAX_OPEN", 3)  # archives are put away while others read them
    listed: list[int] = []
    lock = threading.Lock()
    function = f"list_{end}"
    list_members = getattr(archives, function)

    def count(*arguments):
        with lock:
            listed.append(1)
        return list_members(*arguments)

    monkeypatch.setattr(archives, function, count)
    source = ImageSource(tmp_path, index_dir=tmp_path / "indexes")
    names = [
        (f"{index % 5}.{end}::{name}", data) for index, (name, data) in enumerate(MEMBERS.items())
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda item: source.read(image(item[0])) == item[1], names * 5))
    assert found == [True] * 1000
    assert len(list((tmp_path / "indexes").iterdir())) == 5
    assert len(listed) == 5
    listed.clear()
    assert ImageSource(tmp_path, index_dir=tmp_path / "indexes").read(image(names[0][0]))
    assert listed == []


def test_an_index_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    write_tar(tmp_path / "t.tar", {"a.jpg": b"x"})
    for damage in (b"", b"x" * 10, b"x" * 500):
        assert ImageSource(tmp_path, index_dir=tmp_path / "i").read(image("t.tar::a.jpg")) == b"x"
        (file,) = (tmp_path / "i").iterdir()
        file.write_bytes(damage)
    assert ImageSource(tmp_path, index_dir=tmp_path / "i").read(image("t.tar::a.jpg")) == b"x"
    assert file.stat().st_size > 56


def test_a_root_that_is_gone_is_no_missing_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ImageSource(tmp_path / "unmounted").read(image("t.tar::a.jpg"))


def test_an_archive_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.tar")
    with pytest.raises(StageConfigError, match=r"t\.tar: it is not a file"):
        ImageSource(tmp_path).read(image("t.tar::a.jpg"))


def test_no_row_is_left_out_by_a_damaged_index(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(4)]
    write_tar(tmp_path / "t.tar", dict.fromkeys(names, b"x" * 600))
    index_dir = tmp_path / "i"
    ImageSource(tmp_path, index_dir=index_dir).read(image("t.tar::0.jpg"))
    (file,) = index_dir.iterdir()
    whole = file.read_bytes()
    for place in range(len(whole) - 4 * 56, len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        source = ImageSource(tmp_path, index_dir=index_dir)
        for name in names:
            with contextlib.suppress(ArchiveChangedError):
                assert source.read(image(f"t.tar::{name}")) == b"x" * 600


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
    (tmp_path / there).write_bytes(b"it")
    assert ImageSource(tmp_path).read(image(name.format(root=tmp_path))) == b"it"


@pytest.mark.parametrize("name", ["file:///etc/passwd", "file://{root}/../a.jpg"])
def test_a_file_url_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    assert reason(ImageSource(tmp_path), name.format(root=tmp_path))[0] == "image_outside"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("https://example.org/a.jpg", "https:// is not fetched: download the files"),
        ("s3://bucket/a.jpg", "s3:// is not fetched"),
        ("gs://bucket/a.jpg", "gs:// is not fetched"),
        ("hf://datasets/a/b/c.jpg", "hf:// is not fetched"),
        (" HTTP://example.org/a.jpg", "http:// is not fetched"),
        ("file://server/a.jpg", "a file:// URL that names a machine"),
        ("~/a.jpg", "`~` is not expanded in a manifest"),
        ("$HOME/a.jpg", "`$` is not expanded in a manifest"),
        ("['sub/a.jpg']", "a list or a tag, not the name of one file"),
        (
            "sub/a.jpg?raw=1",
            "it has the end of a URL (`?...`, `#...`); write `sub/a.jpg`",
        ),
        ("A" * 5000, "AAAA...: 5,000 characters, too long for a path"),
        ("base64,iVBORw0KGgo", "base64 without its media type"),
        ("base64://iVBORw0KGgo", "base64 without its media type"),
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
    (tmp_path / "sub").mkdir()
    for file in ("a.jpg", "b c.jpg"):
        (tmp_path / "sub" / file).write_bytes(b"it")
    why, message = reason(ImageSource(tmp_path), name)
    assert why == "missing_image"
    assert words in message


def test_a_remedy_names_no_file_outside(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"it")
    (tmp_path / "root").mkdir()
    assert "which is there" not in reason(ImageSource(tmp_path / "root"), "..\\a.jpg")[1]
