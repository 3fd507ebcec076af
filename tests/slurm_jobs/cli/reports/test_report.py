"""The verb `report` on a fabricated run; the scheduler is a stand-in that knows nothing."""

from __future__ import annotations

import argparse
import json

import pytest

from slurm_jobs.base.redact import hidden_text
from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.cli.reports import report
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
