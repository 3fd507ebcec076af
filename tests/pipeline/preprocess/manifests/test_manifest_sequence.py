"""Several manifests as one sequence of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.preprocess.manifest import open_manifests
from pipeline.preprocess.manifests.manifest_sequence import limited
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import PreprocessConfig
from slurm_jobs.formats.manifests.row_options import RowOptions


@pytest.fixture
def stage(tmp_path: Path) -> PreprocessConfig:
    """Three captions, and two questions under other names of columns."""
    (tmp_path / "captions.csv").write_text("image,text\n" + "a.png,words\n" * 3)
    (tmp_path / "vqa").mkdir()
    lines = ['{"image": "b.png", "frage": "who?", "antwort": "me"}\n'] * 2
    (tmp_path / "vqa" / "train.jsonl").write_text("".join(lines))
    questions = {
        "path": str(tmp_path / "vqa" / "train.jsonl"),
        "name": "vqa",
        "columns": {"prompt": "frage", "text": "antwort"},
    }
    manifests = [str(tmp_path / "captions.csv"), questions]
    return build_config(PreprocessConfig, {"manifest": manifests, "processor": "p"})


def test_rows_of_any_range_are_those_of_the_whole_sequence(stage: PreprocessConfig) -> None:
    manifest = open_manifests(stage.manifest, limit=None, options=RowOptions())
    rows = list(manifest.rows(range(5)))
    assert [row.key for row in rows] == [f"{number:09d}" for number in range(5)]
    places = [str(row.origin) for row in rows]
    assert places[2:] == ["captions.csv:4", "vqa (train.jsonl):1", "vqa (train.jsonl):2"]
    assert [row.messages[-1].text for row in rows[2:4]] == ["words", "me"]
    for start in range(6):
        for stop in range(start, 6):
            assert list(manifest.rows(range(start, stop))) == rows[start:stop]


def test_change_of_any_manifest_changes_the_fingerprint(
    stage: PreprocessConfig, tmp_path: Path
) -> None:
    manifest = open_manifests(stage.manifest, limit=None, options=RowOptions())
    assert manifest.fingerprint_now() == manifest.fingerprint
    (tmp_path / "captions.csv").write_text("image,text\n" + "a.png,others\n" * 3)
    assert manifest.fingerprint_now() != manifest.fingerprint
    (tmp_path / "captions.csv").unlink()
    assert manifest.fingerprint_now() is None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 200))
def test_limit_takes_equal_parts_as_far_as_there_are_rows(sizes: list[int], limit: int) -> None:
    parts = limited(sizes, limit)
    assert sum(parts) == min(limit, sum(sizes))
    cut = [part for part, size in zip(parts, sizes, strict=True) if part < size]
    assert max(cut, default=0) - min(cut, default=0) <= 1
