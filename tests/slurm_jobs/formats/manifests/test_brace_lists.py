"""Lists of files in one path, with braces."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.formats.manifests.brace_lists import has_braces, listed_files
from slurm_jobs.formats.manifests.table_set import NoTableError


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("{00008..00011}.tar", ["00008.tar", "00009.tar", "00010.tar", "00011.tar"]),
        ("x-{8..10}.tar", ["x-8.tar", "x-9.tar", "x-10.tar"]),
        ("{b,a}/{0..1}.tar", ["b/0.tar", "b/1.tar", "a/0.tar", "a/1.tar"]),
        ("train-{0000..0000}-of-0001.parquet", ["train-0000-of-0001.parquet"]),
    ],
)
def test_a_list_has_its_files_in_order(tmp_path: Path, path: str, names: list[str]) -> None:
    make(tmp_path, *names)
    assert has_braces(tmp_path / path)
    table = listed_files(tmp_path / path)
    assert table.files == tuple(tmp_path / name for name in names)
    assert f".{table.kind}" == Path(path).suffix


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{0..3}.tar", r"lists 4 files, and 2 of them do not exist, .*/2\.tar first"),
        ("{0,b}.{tar,parquet}", "neither all tars"),
        ("{0..1}.json", "neither all tars"),
        ("{3..1}.tar", "lists 0 files"),
        ("{0..999999999}.tar", "1,000,000,000 files, not 1 to 100,000"),
        ("{0..999}/{0..999}.tar", "1,000,000 files, not 1 to 100,000"),
    ],
)
def test_a_list_that_is_wrong_says_why(tmp_path: Path, path: str, words: str) -> None:
    make(tmp_path, "0.tar", "1.tar", "b.parquet")
    with pytest.raises(NoTableError, match=words):
        listed_files(tmp_path / path)


def test_a_file_that_has_braces_in_its_name_is_no_list(tmp_path: Path) -> None:
    make(tmp_path, "{0..1}.tar")
    assert not has_braces(tmp_path / "{0..1}.tar")
    assert not has_braces(tmp_path / "plain.tar")
    for placeholder in ("{user}", "{{ user }}", "${HOME}", "{0..}"):
        assert not has_braces(tmp_path / f"{placeholder}.tar")
