"""Members of a tar in groups of one key, and tars that have no groups."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from slurm_jobs.formats.manifests.tars.tar_groups import open_tar
from slurm_jobs.formats.tar_headers import BrokenArchiveError
from tests.webdataset_tars import write_tar

PAIR = {"a.jpg": b"picture", "a.txt": "words"}


def keys_of(path: Path) -> dict[str, list[str]]:
    with open_tar(path) as tar:
        return {group.key: list(group.members) for group in tar.groups()}


def test_the_key_is_the_name_up_to_the_first_dot_of_its_last_part(tmp_path: Path) -> None:
    names = ["./v1.0/a.jpg", "v1.0/a.Seg.PNG", "v1.0/b.txt", "b.txt", f"{'long/' * 60}c.txt"]
    path = write_tar(tmp_path / "t.tar", dict.fromkeys(names, b"x"))
    assert keys_of(path) == {
        "v1.0/a": ["jpg", "seg.png"],
        "v1.0/b": ["txt"],
        "b": ["txt"],
        f"{'long/' * 60}c": ["txt"],
    }


def test_hidden_files_folders_and_names_without_a_dot_are_in_no_group(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    (tmp_path / "in").mkdir()
    for name in (".DS_Store", "._a.jpg", "README", "a.jpg"):
        (tmp_path / "in" / name).touch()
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "in", "x.folder")
    assert keys_of(path) == {"x.folder/a": ["jpg"]}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: os.truncate(path, 700), "truncated: it ends at byte 700, within a member"),
        (lambda path: os.truncate(path, 2048), "without an end mark; copy it again"),
        (lambda path: path.write_bytes(b""), "truncated: it ends at byte 0"),
        (lambda path: path.write_bytes(b"x" * 2048), "no tar header at byte 0"),
        (lambda path: path.write_bytes(gzip.compress(path.read_bytes())), r"compressed \(gzip\)"),
        (
            lambda path: write_tar(path, {**PAIR, "b.txt": "", "a.json": "{}"}),
            "of the key a do not",
        ),
    ],
)
def test_a_damaged_tar_is_refused_with_its_cause(tmp_path: Path, damage: object, said: str) -> None:
    path = write_tar(tmp_path / "t.tar", PAIR)
    damage(path)  # type: ignore[operator]
    with pytest.raises(BrokenArchiveError, match=said):
        keys_of(path)


def test_a_damaged_header_between_members_is_no_end(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", PAIR)
    with path.open("r+b") as stream:
        stream.seek(1024)
        stream.write(b"z.")
    with pytest.raises(BrokenArchiveError, match="no tar header at byte 1024"):
        keys_of(path)
