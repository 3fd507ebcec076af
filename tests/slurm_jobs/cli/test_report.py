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
    assert "the page could not be kept" in err


def test_json_that_cannot_be_kept_is_printed_whole(unwritable_run, capsys):
    assert report.run(argparse.Namespace(run=str(unwritable_run.run_dir), json=True)) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["format"] == "slurm-jobs-report-1"
    assert "the page could not be kept" in err
