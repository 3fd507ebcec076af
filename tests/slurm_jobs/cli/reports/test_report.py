"""The verb `report` on a fabricated run; the scheduler is a stand-in that knows nothing."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.redact import hidden_text
from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.cli.reports import report
from slurm_jobs.formats.timings.step_records import read_steps, steps_header, steps_path
from slurm_jobs.schedulers.protocol import Answer
from tests.slurm_jobs.report import fabricate_run


@pytest.fixture
def anothers_run(tmp_path, monkeypatch):
    """A run of uid 1000 as ada, looked at by a user who may write everywhere, as root may."""
    monkeypatch.setattr("slurm_jobs.run.observe.accounting_of", lambda _run_dir: Answer())
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario())
    paths.run_json.write_text(json.dumps({**json.loads(paths.run_json.read_text()), "uid": 1000}))
    looking_uid = paths.run_dir.stat().st_uid + 1
    monkeypatch.setattr("os.getuid", lambda: looking_uid)
    return paths


@pytest.fixture
def unwritable_run(tmp_path, monkeypatch):
    """A run whose report folder cannot be made: a file has its name, which stops root too."""
    monkeypatch.setattr("slurm_jobs.run.observe.accounting_of", lambda _run_dir: Answer())
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario())
    paths.report_dir.write_text("")
    return paths


def asked(paths, *, as_json):
    options = {"export": None, "share": None, "with_names": False, "epochs": None}
    return argparse.Namespace(run=str(paths.run_dir), json=as_json, **options)


def test_a_report_that_cannot_be_kept_is_printed_with_the_reason(unwritable_run, capsys):
    assert report.run_report(asked(unwritable_run, as_json=False)) == 0
    out, err = capsys.readouterr()
    assert "Where a step's time goes" in out
    assert "page:" not in out
    assert "no page was kept" in err


@pytest.mark.parametrize("word", ["abc ", "/9j/4AAQ", "TOKEN=abc "])
def test_a_report_of_unbounded_records_is_bounded(tmp_path, monkeypatch, capsys, word):
    """Redaction, too, gets a bounded text."""
    monkeypatch.setattr("slurm_jobs.run.observe.accounting_of", lambda _run_dir: Answer())
    hidden, hide = [], hidden_text
    monkeypatch.setattr(
        "slurm_jobs.report.inputs.read_inputs.hidden_text",
        lambda text, known: hidden.append(len(text)) or hide(text, known),
    )
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario())
    reason = f"rank 0: {word * (2_000_000 // len(word))}the end"
    for path in paths.completions_dir("preprocess").iterdir():
        values = json.loads(path.read_text())
        path.write_text(json.dumps({**values, "reason": reason}))
    report.run_report(asked(paths, as_json=False))
    assert max(hidden) <= MAX_LINE_CHARS
    assert len(capsys.readouterr().out) < 60_000
    assert sum(path.stat().st_size for path in paths.report_dir.iterdir()) < 2_000_000


def test_json_that_cannot_be_kept_is_printed_whole(unwritable_run, capsys):
    assert report.run_report(asked(unwritable_run, as_json=True)) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["format"] == "slurm-jobs-report-1"
    assert "no page was kept" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_anothers_run_is_reported_and_its_page_left_as_it_is(anothers_run, capsys, *, as_json):
    anothers_run.report_dir.mkdir()
    anothers_run.report_html.write_text("the owner's")
    assert report.run_report(asked(anothers_run, as_json=as_json)) == 0
    out, err = capsys.readouterr()
    assert ("slurm-jobs-report-1" if as_json else "Where a step's time goes") in out
    assert "page:" not in out
    assert "no page was kept: the run is ada's (uid 1000), and you are uid " in err
    assert err.endswith("; the page there is an older one\n")
    assert anothers_run.report_html.read_text() == "the owner's"
    assert not anothers_run.report_json.exists()


def test_no_page_is_written_through_a_link_out_of_the_run(unwritable_run, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "report.html").write_text("mine")
    unwritable_run.report_dir.unlink()
    unwritable_run.report_dir.symlink_to(elsewhere)
    assert report.run_report(asked(unwritable_run, as_json=False)) == 0
    assert (elsewhere / "report.html").read_text() == "mine"
    assert (
        f"no page was kept: {unwritable_run.report_dir} is a link, which may lead out of the run: "
        "remove it"
    ) in capsys.readouterr().err


def test_no_folder_for_a_page_is_created_in_the_run_of_another_user(anothers_run, capsys):
    assert report.run_report(asked(anothers_run, as_json=False)) == 0
    assert "the page there" not in capsys.readouterr().err
    assert not anothers_run.report_dir.exists()


@pytest.mark.parametrize("uid_of", ["run.json", "folder"])
def test_who_owns_a_run_by_its_folder_or_by_its_record_keeps_the_page(
    anothers_run, monkeypatch, capsys, uid_of
):
    uid = 1000 if uid_of == "run.json" else anothers_run.run_dir.stat().st_uid
    monkeypatch.setattr("os.getuid", lambda: uid)
    assert report.run_report(asked(anothers_run, as_json=False)) == 0
    assert "page: " in capsys.readouterr().out
    assert anothers_run.report_html.exists()


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


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_reader_that_leaves_at_once_loses_neither_the_table_nor_the_page(tmp_path, as_json):
    paths, _ = fabricate_run.fabricate(tmp_path / "run", fabricate_run.Scenario(num_steps=200))
    table = tmp_path / "steps.csv"
    reading, writing = os.pipe()
    os.close(reading)
    words = ["report", str(paths.run_dir), "--export", str(table), *as_json]
    command = [sys.executable, "-m", "slurm_jobs", *words]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")  # 1 would be a run that failed
    assert table.exists()
    assert paths.report_html.exists()
