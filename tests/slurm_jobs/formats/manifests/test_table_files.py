"""Files of a table that are damaged, or a folder without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.tables import captions, write_parquet
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, check

__all__ = ["check"]

SPEC_OF_M = SPEC.format(name="m")


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def test_damaged_tables_and_folders_without_parquet_files_are_reported(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    assert "m is a folder without `*.parquet` or `*.tar` files" in check(SPEC_OF_M)[0]
    (tmp_path / "m/cats").mkdir()
    (tmp_path / "m/cats/1.JPG").touch()
    assert "`slurm-jobs init --data m` writes one" in check(SPEC_OF_M)[0]
    file = write_parquet(tmp_path / "m" / "a.parquet", captions(3))
    file.write_bytes(file.read_bytes()[:-30])
    assert "m is damaged or cut short" in check(SPEC_OF_M)[0]
