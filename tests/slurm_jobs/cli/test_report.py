"""The verb `report` on a fabricated run; the scheduler is a stand-in that knows nothing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from slurm_jobs.cli import report
from slurm_jobs.schedulers.protocol import Answer

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # tests are no package

import fabricate_run


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


def test_a_report_that_cannot_be_kept_is_printed_and_the_reason_is_said(unwritable_run, capsys):
    assert report.run(argparse.Namespace(run=str(unwritable_run.run_dir), json=False)) == 0
    out, err = capsys.readouterr()
    assert "Where a step's time goes" in out
    assert "page:" not in out
    assert "no page was kept" in err


def test_json_that_cannot_be_kept_is_printed_whole(unwritable_run, capsys):
    assert report.run(argparse.Namespace(run=str(unwritable_run.run_dir), json=True)) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["format"] == "slurm-jobs-report-1"
    assert "no page was kept" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_anothers_run_is_reported_and_its_page_left_as_it_is(anothers_run, capsys, *, as_json):
    anothers_run.report_dir.mkdir()
    anothers_run.report_html.write_text("the owner's")
    assert report.run(argparse.Namespace(run=str(anothers_run.run_dir), json=as_json)) == 0
    out, err = capsys.readouterr()
    assert ("slurm-jobs-report-1" if as_json else "Where a step's time goes") in out
    assert "page:" not in out
    assert "no page was kept: the run is ada's (uid 1000), and you are uid " in err
    assert err.endswith("; the page there is an older one\n")
    assert anothers_run.report_html.read_text() == "the owner's"
    assert not anothers_run.report_json.exists()


def test_a_run_of_anothers_without_a_page_gets_no_folder_that_its_owner_could_not_write(
    anothers_run, capsys
):
    assert report.run(argparse.Namespace(run=str(anothers_run.run_dir), json=False)) == 0
    assert "the page there" not in capsys.readouterr().err
    assert not anothers_run.report_dir.exists()


@pytest.mark.parametrize("uid_of", ["run.json", "folder"])
def test_who_owns_a_run_by_its_folder_or_by_its_record_keeps_the_page(
    anothers_run, monkeypatch, capsys, uid_of
):
    uid = 1000 if uid_of == "run.json" else anothers_run.run_dir.stat().st_uid
    monkeypatch.setattr("os.getuid", lambda: uid)
    assert report.run(argparse.Namespace(run=str(anothers_run.run_dir), json=False)) == 0
    assert "page: " in capsys.readouterr().out
    assert anothers_run.report_html.exists()
