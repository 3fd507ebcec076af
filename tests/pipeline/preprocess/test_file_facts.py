"""Files that are kept by what they describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.preprocess.file_facts import KeptFile


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    kept = KeptFile(path=tmp_path / "kept")
    assert kept.load_checked() is None
    kept.save_checked(b"index")
    assert kept.load_checked() == b"index"


@pytest.mark.parametrize("damage", ["empty", "short", "one bit"])
def test_what_is_damaged_is_removed(tmp_path: Path, damage: str) -> None:
    kept = KeptFile(path=tmp_path / "kept")
    kept.save_checked(b"index")
    data = (tmp_path / "kept").read_bytes()
    changed = {"empty": b"", "short": data[:-1], "one bit": data[:-1] + bytes([data[-1] ^ 1])}
    (tmp_path / "kept").write_bytes(changed[damage])
    assert kept.load_checked() is None
    assert not (tmp_path / "kept").exists()


def test_without_a_folder_nothing_is_kept() -> None:
    kept = KeptFile(path=None)
    kept.save_checked(b"index")
    assert kept.load_checked() is None
