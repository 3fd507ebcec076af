"""Folders that Megatron-Energon prepared: tars of a split, the field map, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.manifests.table_files import find_table
from slurm_jobs.formats.manifests.table_set import NoTableError
from tests.webdataset_tars import PREPARED, write_energon

MAP = {"image": "jpg", "caption": "json[text][0],txt"}


def test_the_split_for_training_is_read_without_what_is_excluded(tmp_path: Path) -> None:
    splits = {
        "split_parts": {"train": ["a/{000..003}.tar"], "val": ["b.tar"], "test": []},
        "exclude": ["a/001.tar", "a/002.tar/key"],
    }
    folder = write_energon(tmp_path, splits, field_map=MAP)
    (folder / "a").mkdir()
    for name in ("a/000.tar", "a/002.tar", "a/003.tar", "b.tar"):
        (folder / name).touch()
    table = find_table(folder)
    assert table is not None
    assert [file.name for file in table.files] == ["000.tar", "002.tar", "003.tar"]
    assert (table.split, table.others) == ("train", ("val",))
    assert f"{table.files[1]}/key" in table.excluded
    assert table.fields == {"image": [["jpg"]], "caption": [["json", "text", "0"], ["txt"]]}
    held_out = find_table(folder / "val")
    assert held_out is not None
    assert held_out.files == (folder / "b.tar",)


def test_an_old_name_of_a_type_is_read(tmp_path: Path) -> None:
    splits = {"split_parts": {"train": ["a.tar"]}}
    old = {"__module__": "megatron.energon", "__class__": "VQAWebdataset"}
    fields = {"image": "jpg", "context": "json[q]", "answers": "json[a]"}
    folder = write_energon(tmp_path, splits, sample_type=old, field_map=fields)
    (folder / "a.tar").touch()
    table = find_table(folder)
    assert table is not None
    assert list(table.fields or ()) == ["image", "question", "answers"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sample_type": {**PREPARED, "__class__": "CrudeWebdataset"}}, "a CrudeWebdataset"),
        ({"sample_loader": "sample_loader.py:sample_loader"}, "`sample_loader`"),
        ({"sample_type": {**PREPARED, "__class__": "VidQASample"}}, "megatron.energon.VidQASample"),
        ({"sample_type": {**PREPARED, "__module__": "mine"}}, "mine.CaptioningSample"),
        ({"field_map": {"image": "jpg", "lines_boxes": "json"}}, "its keys can be image, caption"),
        ({}, "`field_map` of .nv-meta/dataset.yaml is None"),
    ],
)
def test_samples_that_are_not_read_are_refused_by_name(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    splits = {"split_parts": {"train": ["a.tar"]}}
    folder = write_energon(tmp_path, splits, **values)
    (folder / "a.tar").touch()
    with pytest.raises(NoTableError) as caught:
        find_table(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["a.tar", "../a.tar"])
def test_a_listed_tar_must_be_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.tar").touch()
    folder = write_energon(tmp_path / "set", {"split_parts": {"train": [name]}}, field_map=MAP)
    with pytest.raises(NoTableError, match=r"which does not exist; copy it again"):
        find_table(folder)
