"""Parts that are missing, damaged or made otherwise, told by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.errors import StageError
from tests.pipeline.build import preprocess_with_3_bad_rows_of_40, run_consolidate
from tests.pipeline.consolidate.conftest import preprocess_again


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)


def add_a_row(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "end_row": 24}))


def add_a_setting(path: Path) -> None:
    """As after an update between the array tasks."""
    values = json.loads(path.read_text())
    values["settings"]["of_one_version"] = None
    path.write_text(json.dumps(values))


NO_PART = r"^[^:]*part-00001\.json: format None, expected '[^']*'; preprocess slice 1 again$"
OTHER = r"part-00001\.json: made with other settings .*\(of_one_version differ\)"


@pytest.mark.parametrize(
    ("name", "break_it", "words"),
    [
        ("part-00001.json", Path.unlink, r"1 of 2 parts are missing: part-00001\.json"),
        ("part-00001.tar", cut, r"part-00001\.tar: .* bytes, expected"),
        ("part-00000.tar", flip_a_bit, "sample 000000000 at byte 0 does not match"),
        (
            *("part-00001.json", add_a_row),
            r"part-00001\.json: 12 samples and rejects, expected 13; preprocess slice 1 again",
        ),
        *((f"part-0000{number}.json", add_a_setting, OTHER) for number in (0, 1)),
        *(
            ("part-00001.json", lambda path, text=text: path.write_text(text), NO_PART)
            for text in ("null", "5", "[]", "{}")
        ),
    ],
)
def test_part_that_is_missing_damaged_or_made_otherwise_is_named(
    tmp_path: Path, parts_dir: Path, name: str, break_it: Callable[[Path], object], words: str
) -> None:
    break_it(parts_dir / "parts" / name)
    with pytest.raises(StageError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    assert not (tmp_path / "set" / "output" / "dataset.json").exists()


def test_part_whose_list_of_rejects_was_cut_or_lost_is_named(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_with_3_bad_rows_of_40(tmp_path, processor_dir, 4, max_reject_share=0.1)
    rejects = parts_dir / "parts" / "part-00000.rejects.jsonl"
    rejects.write_bytes(b"")
    words = r"part-00000\.rejects\.jsonl: 0 bytes, expected \d+; preprocess slice 0 again"
    with pytest.raises(StageError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 4)
    rejects.unlink()
    with pytest.raises(StageError, match=r"part-00000\.rejects\.jsonl'; preprocess slice 0 again"):
        run_consolidate(tmp_path / "set", parts_dir, 4)


def test_parts_of_different_manifests_are_not_mixed(
    tmp_path: Path, parts_dir: Path, processor_dir: Path
) -> None:
    preprocess_again(parts_dir, processor_dir, 1, azure=True)
    again = rf"again by `slurm-jobs resume {re.escape(str(parts_dir.parent.parent))} --again prep`$"
    with pytest.raises(StageError, match=rf"part-00001.json.*manifest_xxh3.*{again}"):
        run_consolidate(tmp_path / "set", parts_dir, 2)


@pytest.mark.parametrize("name", ["pillow", "simplejpeg", "tokenizers", "torch", "transformers"])
def test_parts_of_different_versions_of_what_makes_samples_are_not_mixed(
    parts_dir: Path, processor_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A second version is not to be had: its number is made up."""
    from pipeline.preprocess import stage

    real = stage.version
    monkeypatch.setattr(stage, "version", lambda of: "0.0" if of == name else real(of))
    preprocess_again(parts_dir, processor_dir, 1, azure=False)
    with pytest.raises(StageError, match=r"part-00001\.json.*\(versions differ\)"):
        run_consolidate(parts_dir.parent / "set", parts_dir, 2)
