"""Parts that are missing, damaged or made otherwise, told by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurm_jobs.shared.errors import StageError
from tests.pipeline.build import (
    make_context,
    preprocess_23,
    preprocess_with_3_bad_rows_of_40,
    run_consolidate,
)


def test_missing_part_is_named(tmp_path: Path, processor_dir: Path) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    (parts_dir / "parts" / "part-00001.json").unlink()
    with pytest.raises(StageError, match=r"1 of 2 parts are missing: part-00001\.json"):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    assert not (tmp_path / "set" / "output" / "dataset.json").exists()


def test_truncated_part_is_named(tmp_path: Path, processor_dir: Path) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    tar = parts_dir / "parts" / "part-00001.tar"
    tar.write_bytes(tar.read_bytes()[:-1000])
    with pytest.raises(StageError, match=r"part-00001\.tar: .* bytes, expected"):
        run_consolidate(tmp_path / "set", parts_dir, 2)


def test_part_that_does_not_account_for_each_of_its_rows_is_named(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    index = parts_dir / "parts" / "part-00001.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "end_row": 24}))
    words = r"part-00001\.json: 12 samples and rejects, expected 13; preprocess slice 1 again"
    with pytest.raises(StageError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)


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


@pytest.mark.parametrize("number", [0, 1])
def test_setting_that_only_one_part_has_is_named(
    tmp_path: Path, processor_dir: Path, number: int
) -> None:
    """As after an update between the array tasks."""
    parts_dir = preprocess_23(tmp_path, processor_dir)
    index = parts_dir / "parts" / f"part-{number:05d}.json"
    values = json.loads(index.read_text())
    values["settings"]["of_one_version"] = None
    index.write_text(json.dumps(values))
    words = r"part-00001\.json: made with other settings .*\(of_one_version differ\)"
    with pytest.raises(StageError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)


def test_flipped_bit_in_a_part_is_named_with_its_sample(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    tar = parts_dir / "parts" / "part-00000.tar"
    data = bytearray(tar.read_bytes())
    data[700] ^= 1
    tar.write_bytes(data)
    with pytest.raises(StageError, match="sample 000000000 at byte 0 does not match"):
        run_consolidate(tmp_path / "set", parts_dir, 2)


def test_parts_of_different_manifests_are_not_mixed(tmp_path: Path, processor_dir: Path) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    manifest = tmp_path / "source" / "train.csv"
    manifest.write_text(manifest.read_text().replace("blue ", "azure "))
    config = {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 1}
    from pipeline.preprocess.stage import run

    run(config, make_context(tmp_path / "prep", slice_index=1, num_slices=2))
    again = rf"again by `slurm-jobs resume {re.escape(str(parts_dir.parent.parent))} --again prep`$"
    with pytest.raises(StageError, match=rf"part-00001.json.*manifest_xxh3.*{again}"):
        run_consolidate(tmp_path / "set", parts_dir, 2)


@pytest.mark.parametrize("name", ["pillow", "simplejpeg", "tokenizers", "torch", "transformers"])
def test_parts_of_different_versions_of_what_makes_samples_are_not_mixed(
    tmp_path: Path, processor_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A second version is not to be had: its number is made up."""
    from pipeline.preprocess import stage
    from pipeline.preprocess.stage import run

    parts_dir = preprocess_23(tmp_path, processor_dir)
    real = stage.version
    monkeypatch.setattr(stage, "version", lambda of: "0.0" if of == name else real(of))
    manifest = tmp_path / "source" / "train.csv"
    config = {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 1}
    run(config, make_context(tmp_path / "prep", slice_index=1, num_slices=2))
    with pytest.raises(StageError, match=r"part-00001\.json.*\(versions differ\)"):
        run_consolidate(tmp_path / "set", parts_dir, 2)


@pytest.mark.parametrize("text", ["null", "5", "[]", "{}"])
def test_file_that_describes_no_part_is_named_once(
    tmp_path: Path, processor_dir: Path, text: str
) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    (parts_dir / "parts" / "part-00001.json").write_text(text)
    words = r"[^:]*part-00001\.json: format None, expected '[^']*'; preprocess slice 1 again"
    with pytest.raises(StageError, match=f"^{words}$"):
        run_consolidate(tmp_path / "set", parts_dir, 2)
