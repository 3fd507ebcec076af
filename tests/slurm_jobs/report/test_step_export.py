"""Step records of a run as a table: every step once, and no name that is a formula."""

from __future__ import annotations

import argparse
import csv
import shutil

import numpy as np
import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.cli.reports import report
from slurm_jobs.formats.timings.step_records import read_steps, steps_header, steps_path
from slurm_jobs.schedulers.protocol import Answer
from tests.slurm_jobs.report import fabricate_run


@pytest.fixture
def silent_run(tmp_path, monkeypatch):
    monkeypatch.setattr("slurm_jobs.run.observe.accounting_of", lambda _run_dir: Answer())
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario(num_steps=200))
    return paths


def export(paths, path, capsys):
    options = argparse.Namespace(
        run=str(paths.run_dir), export=path, share=None, with_names=False, epochs=None, json=False
    )
    assert report.run_report(options) == 0
    return capsys.readouterr().out


def recorded(paths):
    return [
        read_steps(steps_path(paths.timing_dir("train", 0, attempt), rank)).steps
        for attempt in (1, 2)
        for rank in (0, 1)
    ]


def test_every_step_of_every_rank_and_attempt_is_a_row_of_csv(silent_run, tmp_path, capsys):
    said = export(silent_run, tmp_path / "steps.csv", capsys)
    records = np.concatenate(recorded(silent_run))
    assert f"steps: {tmp_path / 'steps.csv'} ({len(records):,} rows)" in said
    with (tmp_path / "steps.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == records["step"].tolist()
    back = np.array([row["step_s"] for row in rows], dtype=np.float32)
    assert back.tolist() == records["step_s"].tolist()  # bit for bit
    assert {row["grad_norm"] for row in rows} == {""}
    first = [row for row in rows if row["attempt"] == "1" and row["rank"] == "0"]
    assert sum(row["counts"] == "True" for row in first) == 150
    assert sum(row["is_repeated"] == "True" for row in first) == 20
    assert {(row["stage"], row["node"]) for row in rows} == {("train", "gpu-01")}


@pytest.mark.parametrize("start", [*"=+-@", "\uff1d"])
def test_no_name_of_a_node_is_a_formula_and_numbers_stay(silent_run, tmp_path, capsys, start):
    name = f'{start}HYPERLINK("http://evil.example","x")'
    for attempt in (1, 2):
        for rank in (0, 1):
            path = steps_path(silent_run.timing_dir("train", 0, attempt), rank)
            file = read_steps(path)
            steps = file.steps.copy()
            steps["loss"] = -1.5
            header = steps_header({**file.metadata, "node_name": name})
            path.write_bytes(header + steps.tobytes())
    export(silent_run, tmp_path / "steps.csv", capsys)
    with (tmp_path / "steps.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["node"], row["loss"]) for row in rows} == {(f"'{name}", "-1.5")}


def test_parquet_has_the_same_rows_with_types(silent_run, tmp_path, capsys):
    import pyarrow.parquet as pq

    export(silent_run, tmp_path / "steps.parquet", capsys)
    table = pq.read_table(tmp_path / "steps.parquet")
    records = np.concatenate(recorded(silent_run))
    assert table.column("loss").to_numpy().tolist() == records["loss"].tolist()
    assert str(table.schema.field("step_s").type) == "float"
    assert str(table.schema.field("counts").type) == "bool"
    assert table.column_names[:3] == ["stage", "slice", "attempt"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("steps.txt", "name a file that ends with .csv or .parquet"),
        ("nowhere/steps.csv", "there is no folder"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_before_the_report(
    silent_run, tmp_path, capsys, name, said
):
    with pytest.raises(InputError, match=said):
        export(silent_run, tmp_path / name, capsys)
    assert capsys.readouterr().out == ""


def test_a_run_without_steps_has_nothing_to_export(silent_run, tmp_path, capsys):
    shutil.rmtree(silent_run.timing_stage_dir("train"))
    with pytest.raises(InputError, match="no step records to export"):
        export(silent_run, tmp_path / "steps.csv", capsys)
    assert not (tmp_path / "steps.csv").exists()
