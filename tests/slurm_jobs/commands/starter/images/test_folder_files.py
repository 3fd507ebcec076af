"""Leftovers of systems and file servers, links and special files in a folder of images."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from PIL import Image

from slurm_jobs.commands.starter.images.folder_files import (
    has_captions,
    has_images,
    list_files,
    without_damaged,
)
from slurm_jobs.commands.starter.images.image_folder import read_image_folder
from slurm_jobs.commands.starter.images.suffixes import IMAGE_SUFFIXES
from tests.slurm_jobs.commands.starter.images.test_image_folder import notes, rows, touch, write


@pytest.mark.parametrize(
    "path",
    [
        "cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg",
        "#recycle/old.jpg",
        "@Recycle/old.jpg",
        ".ipynb_checkpoints/1-checkpoint.jpg",
        "$RECYCLE.BIN/S-1-5/$R1.jpg",
        "lost+found/1.jpg",
        "System Volume Information/1.jpg",
        "__MACOSX/cat/._1.jpg",
        "cat/._1.jpg",
        "cat/Thumbs.db",
        "desktop.ini",
        ".DS_Store",
        ".git/1.jpg",
    ],
)
@pytest.mark.parametrize("has_texts", [True, False])
def test_leftovers_are_skipped_and_counted(tmp_path: Path, path: str, has_texts: bool) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg", path)
    words = {"cat/1.jpg": "cat", "dog/1.jpg": "dog"}
    if has_texts:
        words = {"cat/1.jpg": "a cat"}
        write(tmp_path, **{"cat/1.txt": "a cat", str(Path(path).with_suffix(".txt")): "old"})
    assert rows(tmp_path) == words
    (note,) = [note for note in read_image_folder(tmp_path).notes if "from a system" in note]
    assert note.startswith("left out: ")
    (skipped,) = {part for part in Path(path).parts if f"1 {part}" in note}
    assert skipped


def test_leftovers_are_counted_by_name(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{name}/1.jpg" for name in "abc"), *(f"{n}/@eaDir/1.jpg" for n in "abc"))
    touch(tmp_path, *(f"a/._{number}.jpg" for number in range(9)))
    assert "12 files and folders, hidden or from a system or file server: 3 @eaDir, 1 ._" in notes(
        tmp_path
    )
    assert "and 2 more" in notes(tmp_path)


def test_a_folder_of_leftovers_alone_has_no_images(tmp_path: Path) -> None:
    touch(tmp_path, "@eaDir/1.jpg", ".hidden/1.jpg")
    assert not has_images(tmp_path)
    assert not has_captions(tmp_path)


def test_links_that_lead_back_and_special_files_are_counted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    touch(data, "cat/1.jpg", "dog/1.jpg")
    touch(tmp_path, "private/2.jpg")
    (data / "up").symlink_to("..")
    (data / "same").symlink_to("cat")
    (data / "self.jpg").symlink_to("self.jpg")
    (data / "gone.jpg").symlink_to("nowhere")
    os.mkfifo(data / "pipe.jpg")
    found = list_files(data)
    assert [path.name for path in found.twins] == ["same", "up"]
    assert [path.name for path in found.unread] == ["gone.jpg", "pipe.jpg", "self.jpg"]
    assert rows(data) == {"cat/1.jpg": "cat", "dog/1.jpg": "dog"}
    printed = notes(data)
    assert (
        "2 links to folders that are read already, or that contain this one (same, up)" in printed
    )
    assert "not read: 3 paths that cannot be opened" in printed


def test_images_of_each_format_are_whole(tmp_path: Path) -> None:
    picture = Image.new("RGB", (32, 24), (200, 30, 30))
    written = []
    for suffix in sorted(IMAGE_SUFFIXES):
        file = tmp_path / f"picture{suffix}"
        with contextlib.suppress(OSError, ValueError, KeyError):  # formats that are only read
            picture.save(file)
            written.append(file)
    assert len(written) > len(IMAGE_SUFFIXES) / 2
    assert without_damaged(written) == (written, [])
