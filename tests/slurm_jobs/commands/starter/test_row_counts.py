"""Number of rows of a manifest: counted where that is quick, estimated for a long list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.commands.starter import row_counts
from slurm_jobs.commands.starter.row_counts import RowCount, count_table_rows, count_text_rows
from slurm_jobs.formats.manifests.table_files import find_table
from tests.webdataset_tars import write_tar

ROWS = [{"image": f"{number}.jpg", "text": "x" * (number % 9)} for number in range(500)]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_rows_of_a_list_are_counted_however_it_is_laid_out(
    tmp_path: Path, indent: int | None
) -> None:
    (tmp_path / "m.json").write_text(json.dumps(ROWS, indent=indent))
    assert count_text_rows(tmp_path / "m.json") == RowCount(number=500)


def test_the_rows_of_a_long_list_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_counts, "_LONG_LIST_BYTES", 1000)
    monkeypatch.setattr(row_counts, "_SAMPLE_BYTES", 2000)
    (tmp_path / "m.json").write_text(json.dumps(ROWS))
    count = count_text_rows(tmp_path / "m.json")
    assert not count.is_exact
    assert count.number == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize("text", ["[", "[1, }", '["\ud83d'.encode("utf-8", "replace").decode()])
def test_the_rows_of_a_damaged_list_are_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert count_text_rows(tmp_path / "m.json").number is None


def test_lines_are_counted_of_csv_without_its_header(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("image,text\na,b\nc,d")
    (tmp_path / "m.jsonl").write_text("{}\n{}\n{}\n")
    assert count_text_rows(tmp_path / "m.csv") == RowCount(number=2, is_exact=False)
    assert count_text_rows(tmp_path / "m.jsonl") == RowCount(number=3, is_exact=False)


def test_the_rows_of_parquet_and_of_a_saved_data_set_are_counted(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": [row["text"] for row in ROWS]})
    pq.write_table(table, tmp_path / "m.parquet", row_group_size=99)
    saved = tmp_path / "saved"
    saved.mkdir()
    for name in ("data-0.arrow", "data-1.arrow"):
        with (
            pa.OSFile(str(saved / name), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=77)
    files = [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    for path, number in ((tmp_path / "m.parquet", 500), (saved, 1000)):
        found = find_table(path)
        assert found is not None
        assert count_table_rows(found) == RowCount(number=number)


@pytest.mark.parametrize(
    ("num_stats", "most_groups", "is_exact"),
    [(3, 50, True), (2, 1000, True), (2, 50, False)],
    ids=["counted by img2dataset", "few enough to be counted", "too many to be counted"],
)
def test_rows_of_tars_are_counted_or_estimated_from_the_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_stats: int,
    most_groups: int,
    is_exact: bool,
) -> None:
    monkeypatch.setattr(row_counts, "_MOST_GROUPS", most_groups)
    for tar in range(3):
        members = {f"{row}.{kind}": "x" * 5000 for row in range(20) for kind in ("jpg", "txt")}
        write_tar(tmp_path / f"{tar}.tar", members)
        if tar < num_stats:
            (tmp_path / f"{tar}_stats.json").write_text('{"count": 30, "successes": 20}')
    table = find_table(tmp_path)
    assert table is not None
    count = count_table_rows(table)
    assert count.is_exact == is_exact
    assert count.number == pytest.approx(60, rel=0 if is_exact else 0.1)
