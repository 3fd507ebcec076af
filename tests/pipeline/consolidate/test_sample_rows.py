"""Rows of scattered samples, fetched from the files of many parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.consolidate import sample_rows
from pipeline.consolidate.parts import Parts, gather_parts
from pipeline.consolidate.sample_rows import fetch_rows
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import preprocess_23


@pytest.fixture(scope="module")
def parts_dir(tmp_path_factory: pytest.TempPathFactory, processor_dir: Path) -> Path:
    return preprocess_23(tmp_path_factory.mktemp("parts"), processor_dir, 4)


@pytest.fixture(scope="module")
def parts(parts_dir: Path) -> Parts:
    return gather_parts(
        ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=4)
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    numbers=st.permutations(range(23)), count=st.integers(0, 23), page=st.sampled_from([0, 1, 73])
)
def test_rows_come_in_the_requested_order(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, numbers: list[int], count: int, page: int
) -> None:
    """Whether they are read one by one (`page` 0), or in runs."""
    monkeypatch.setattr(sample_rows, "_ROWS_OF_A_PAGE", page)
    monkeypatch.setattr(sample_rows, "_RUN_ROWS", 4)
    found = fetch_rows(parts, np.array(numbers[:count], dtype=np.int64), num_threads=3)
    assert found["key"].tolist() == numbers[:count]


@pytest.mark.parametrize("page", [0, 73])
def test_damaged_row_is_named(
    tmp_path: Path, processor_dir: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(sample_rows, "_ROWS_OF_A_PAGE", page)
    folder = preprocess_23(tmp_path, processor_dir, 2)
    parts = gather_parts(
        ParentStage(stage="prep", run="preprocess", output_dir=folder, num_slices=2)
    )
    path = folder / "parts" / "part-00001.samples.npy"
    data = bytearray(path.read_bytes())
    data[-60] ^= 1  # the last but one of 12 rows
    path.write_bytes(data)
    words = r"part-00001\.samples\.npy: its row of sample 10 is damaged; preprocess slice 1"
    with pytest.raises(StageError, match=words):
        fetch_rows(parts, np.arange(23), num_threads=2)
    assert len(fetch_rows(parts, np.arange(20), num_threads=2)) == 20
