"""Rows that cannot be used, and whether the stage fails because of them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slurm_jobs.commands.spec_reading.disk_files import MOST_SIZES
from tests.slurm_jobs.spec.checks.data.checked_manifests import CHAT, TEXT_SPEC, VIDEO, write
from tests.slurm_jobs.spec.checks.preprocess_spec import write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def test_too_many_unusable_rows_are_an_error_with_the_numbers(check: Check, tmp_path: Path) -> None:
    (line,) = check(write(tmp_path, [CHAT] * 40 + [VIDEO] * 2))
    said = "2 of 42 rows cannot be used. The stage fails, because max_reject_share: 0.01 allows 1"
    assert said in line
    assert "\n  m.jsonl:41: `video` holds video, which is not read" in line
    assert line.endswith("(the first of 2 rows)")


@pytest.mark.parametrize(
    ("num_good", "setting"),
    [
        (40, "      max_reject_share: 0.05\n"),
        (40, "  c: {run: consolidate, after: p, config: {max_reject_share: 0.05}}\n"),
        (1200, ""),  # the rest of the manifest was not read
        (1, "limit: 1\n"),
    ],
)
def test_rows_that_cannot_be_used_are_no_error_where_the_job_may_lose_them(
    check: Check, tmp_path: Path, num_good: int, setting: str
) -> None:
    assert check(write(tmp_path, [CHAT] * num_good + [VIDEO] * 2) + setting) == []


@pytest.mark.parametrize(
    "case", ["a folder of many files", "a table", "an array by itself", "an earlier stage"]
)
def test_unusable_rows_are_noted_where_the_stage_may_end_well_nevertheless(
    check: Check, notes: Notes, tmp_path: Path, case: str
) -> None:
    rows = [CHAT] * 40 + [VIDEO] * 2
    text = write(tmp_path, rows)
    if case == "a folder of many files":  # whose sizes are not asked for
        for number in range(MOST_SIZES):
            (tmp_path / f"{number}.txt").touch()
    elif case == "a table":
        table = pa.Table.from_pylist([{**CHAT, "video": row.get("video")} for row in rows])
        pq.write_table(table, tmp_path / "m.parquet")
        text = TEXT_SPEC.format(name="m.parquet")
    elif case == "an array by itself":
        text = text.replace("run: preprocess\n", "run: preprocess\n    array: {num_slices: 7}\n")
    else:
        text = text.replace("run: preprocess\n", "run: preprocess\n    after: clean\n")
        text = text.replace("stages:\n", "stages:\n  clean: {shell: python clean.py}\n")
    assert check(text) == []
    found = "".join(notes(text))
    assert "2 of " in found
    assert "The stage would fail with rows like these" in found
