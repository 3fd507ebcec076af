"""Pictures through `load_pixels`, in each way of decoding, and files that cannot be read."""

from __future__ import annotations

import errno
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.photographs import as_jpeg, make_photograph
from pipeline.preprocess.images import image_sources
from pipeline.preprocess.images.image_sources import read_image_bytes
from pipeline.preprocess.rejects import SampleRejectedError
from tests.pipeline.preprocess.pictures import WAYS, encode, load, psnr, to


@pytest.mark.parametrize(
    ("size", "to_size"),
    [
        ((1152, 864), (384, 384)),
        ((864, 1152), (512, 512)),
        ((641, 427), (211, 140)),
        ((2001, 1333), (224, 224)),
        ((300, 400), (384, 384)),
    ],
)
@pytest.mark.parametrize("resample", [1, 2, 3])
def test_photographs_differ_from_exact_by_no_more_than_the_way_allows(
    size: tuple[int, int], to_size: tuple[int, int], resample: int
) -> None:
    data = as_jpeg(make_photograph(3, *size))
    target = to(*to_size, resample=resample)
    exact = load(data, "exact", target)
    assert psnr(load(data, "fine", target), exact) >= 50
    assert psnr(load(data, "fast", target), exact) >= 40


def test_same_bytes_give_the_same_pixels_in_many_threads_at_once() -> None:
    data = [as_jpeg(make_photograph(seed, 300, 200)) for seed in range(4)]
    start = threading.Barrier(8)

    def work(index: int) -> list[bytes]:
        start.wait()
        return [load(data[index % 4], way, to(64, 48)).tobytes() for way in WAYS for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    alone = [
        [load(one, way, to(64, 48)).tobytes() for way in WAYS for _ in range(10)] for one in data
    ]
    assert found == alone + alone


def test_lack_of_memory_is_no_fault_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reject would make the data set depend on the node; memory cannot be made to lack here."""

    def lack(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lack)
    for decoding in WAYS:
        with pytest.raises(MemoryError):
            load(encode(Image.new("RGB", (8, 8))), decoding)


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
