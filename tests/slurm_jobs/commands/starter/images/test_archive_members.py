"""Pictures in archives are shown as a manifest names them."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.data_inspection import inspect_data
from slurm_jobs.commands.starter.images.archive_members import archive_note, member_syntax
from slurm_jobs.commands.starter.images.image_folder import read_image_folder


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A folder with a tar of a picture, and a zip of one and its text."""
    text, image = tmp_path / "1.txt", tmp_path / "1.jpg"
    text.write_text("words")
    image.write_bytes(b"\xff\xd8\xff\xe0")
    folder = tmp_path / "archives"
    folder.mkdir()
    with tarfile.open(folder / "shard.tar", "w") as tar:
        tar.add(image, "cats/1.jpg")
    with zipfile.ZipFile(folder / "photos.zip", "w") as zipped:
        zipped.write(text, "cats/1.txt")
        zipped.write(image, "cats/1.jpg")
    return folder


@pytest.mark.parametrize("name", ["shard.tar", "photos.zip"])
def test_an_archive_is_refused_with_the_syntax_of_its_members(archives: Path, name: str) -> None:
    assert member_syntax(archives / name) == f"{name}::cats/1.jpg"
    with pytest.raises(InputError, match=f"as `{name}::cats/1.jpg`"):
        inspect_data(archives / name, as_named="m")


def test_a_folder_of_archives_shows_the_syntax_of_members(archives: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_image_folder(archives)
    for member in ("shard.tar::cats/1.jpg", "photos.zip::cats/1.jpg"):
        assert f"unpack, or list members in a manifest, as `{member}`" in str(caught.value)


def test_archives_next_to_a_list_are_counted(archives: Path) -> None:
    note = archive_note(archives)
    assert note is not None
    assert note.startswith("not read: 2 archives next to the list")
    assert archive_note(archives.parent) is None


@pytest.mark.parametrize("content", [b"", b"no archive", b"\0" * 1024, b"PK\x03\x04 cut"])
@pytest.mark.parametrize("name", ["a.tar", "a.zip", "a.tar.gz"])
def test_what_is_no_archive_of_images_has_no_members(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert member_syntax(tmp_path / name) is None
