"""Folder that the paths of images in a manifest start from, found by the images themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.commands.starter.images.image_root import find_image_root
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.text import first_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder without others next to it, in which images would be found, too."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def _find(folder: Path, manifest: str, names: list[str], present: list[str]) -> Path | None:
    for name in present:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    path = folder / manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{"image": name, "text": "x"} for name in names]))
    return find_image_root(path.parent, first_rows(path, RowOptions()))


@pytest.mark.parametrize(
    ("manifest", "present", "root"),
    [
        ("m.json", ["a.jpg", "b.jpg"], None),  # where they are looked for
        ("m.json", ["images/a.jpg", "images/b.jpg"], "images"),
        ("m.json", ["data/x/a.jpg", "data/x/b.jpg"], "data/x"),
        ("lists/m.json", ["pics/a.jpg", "pics/b.jpg"], "pics"),
        ("lists/m.json", ["a.jpg", "b.jpg"], "."),
        ("m.json", ["one/a.jpg", "two/b.jpg"], None),  # in no single folder
        ("m.json", ["x/y/z/a.jpg", "x/y/z/b.jpg"], None),  # too deep to be looked for
        ("m.json", [".cache/a.jpg", ".cache/b.jpg"], None),
        ("m.json", [], None),
    ],
)
def test_the_nearest_folder_that_holds_all_images_is_found(
    folder: Path, manifest: str, present: list[str], root: str | None
) -> None:
    found = _find(folder, manifest, ["a.jpg", "b.jpg"], present)
    assert found == (None if root is None else (folder / root).resolve())


def test_a_folder_with_some_of_the_images_is_passed_over(folder: Path) -> None:
    names = [f"{number}.jpg" for number in range(40)]
    present = [f"few/{name}" for name in names[:30]] + [f"most/{name}" for name in names]
    assert _find(folder, "m.json", names, present) == folder / "most"


@pytest.mark.parametrize(("num_lost", "root"), [(1, "images"), (9, "images"), (10, None)])
def test_lost_images_do_not_hide_the_folder_of_the_others(
    folder: Path, num_lost: int, root: str | None
) -> None:
    names = [f"{number}.jpg" for number in range(20)]
    present = [f"images/{name}" for name in names[::-1][num_lost:]]
    found = _find(folder, "m.json", names, present)
    assert found == (None if root is None else folder / root)


@pytest.mark.parametrize("name", ["/tmp/a.jpg", "https://x.org/a.jpg"])
def test_absolute_names_and_addresses_are_looked_for_nowhere(folder: Path, name: str) -> None:
    assert _find(folder, "m.json", [name], ["images/a.jpg"]) is None


@pytest.mark.parametrize(
    ("manifest", "root"),
    [("ann/train", "train"), ("ann/rows", "train"), ("ann/val", "val"), ("ann/val_rows", "val")],
)
def test_of_folders_with_the_same_names_that_of_the_split_is_taken(
    folder: Path, manifest: str, root: str
) -> None:
    for split in ("test", "train", "val"):
        (folder / split).mkdir()
        (folder / split / "0.jpg").touch()
    path = folder / f"{manifest}.json"
    path.parent.mkdir()
    path.write_text('[{"image": "0.jpg", "text": "x"}]')
    rows = first_rows(path, RowOptions())
    assert find_image_root(path.parent, rows, manifest_name=path.stem) == folder / root
