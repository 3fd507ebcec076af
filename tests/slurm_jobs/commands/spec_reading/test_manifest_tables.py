"""Tables as `check` looks at them, with pyarrow and without."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from slurm_jobs.cli.main import main
from slurm_jobs.commands.spec_reading import manifest_tables
from tests.pipeline.tables import captions, picture, write_parquet, write_saved
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, check
from tests.webdataset_tars import write_tar

__all__ = ["check"]

SPEC_OF_M = SPEC.format(name="m")
PLACE = "7:17: stages.p.config.manifest: m"


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


WRITERS = [
    lambda folder, table: write_parquet(folder / "a.parquet", table),
    lambda folder, table: write_saved(folder, [table]),
    write_parquet,  # a file that is called `m`
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_table_without_rows_or_columns_is_a_problem_at_its_line(
    check: Check, tmp_path: Path, write
) -> None:
    write(tmp_path / "m", captions(3).slice(0, 0))
    assert check(SPEC_OF_M) == [f"{PLACE} has no rows; there is nothing to preprocess"]
    write(tmp_path / "m", pa.table({"url": ["a"], "caption": ["b"]}))
    (line,) = check(SPEC_OF_M)
    assert line.startswith(f"{PLACE}: no column has ")
    assert "found: url, caption. Name it" in line
    write(tmp_path / "m", captions(3))
    assert check(SPEC_OF_M) == []


def test_tars_are_checked_by_their_first_rows(check: Check, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "m" / "0.tar", {"a.mp4": b"x", "a.png": picture(0), "a.txt": "cat"})
    (line,) = check(SPEC_OF_M)
    assert line.startswith(f"{PLACE}: the first row, 0.tar:a, cannot be used: `a.mp4` is not read")
    assert check(f"{SPEC_OF_M}      columns: {{ignore: [mp4]}}\n") == []
    (line,) = check(f"{SPEC_OF_M}      columns: {{text: words, ignore: [mp4]}}\n")
    assert "no column `words`, which `columns.text` names" in line
    write_tar(tar, {})
    assert check(SPEC_OF_M) == [f"{PLACE} has no rows; there is nothing to preprocess"]
    tar.write_bytes(b"PK")
    assert check(SPEC_OF_M) == [
        f"{PLACE}: 0.tar: truncated: it ends at byte 2, without an end mark; copy it again"
    ]


@pytest.mark.parametrize("kept_bytes", [0, 700, 1024])
def test_a_tar_that_a_copy_cut_short_is_named_wherever_it_is(
    check: Check, tmp_path: Path, kept_bytes: int
) -> None:
    for number in range(3):
        tar = write_tar(tmp_path / f"m/{number}.tar", {"a.png": picture(0), "a.txt": "cat"})
    assert check(SPEC_OF_M) == []
    os.truncate(tar, kept_bytes)
    (line,) = check(SPEC_OF_M)
    assert line.startswith(f"{PLACE}: 2.tar: truncated: it ends at byte {kept_bytes}, without an")


def test_a_table_whose_first_file_is_empty_may_have_rows(check: Check, tmp_path: Path) -> None:
    write_saved(tmp_path / "m", [captions(3).slice(0, 0), captions(3)])
    assert check(SPEC_OF_M) == []


def test_without_pyarrow_check_says_what_it_did_not_read(
    check: Check,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_parquet(tmp_path / "m" / "a.parquet", captions(3).slice(0, 0))
    monkeypatch.setattr(manifest_tables, "has_pyarrow", lambda: False)
    assert check(SPEC_OF_M) == []
    with pytest.raises(SystemExit, match="0"):
        main(["check", str(tmp_path / "spec.yaml"), "--json"])
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    place = f"stages.p.config.manifest: {tmp_path}/m"
    assert note.startswith(f"{place} is a table, and this Python has no pyarrow: its columns and")
