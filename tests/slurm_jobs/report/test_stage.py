"""The stage that writes a report."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from slurm_jobs.report.stage import build_and_write, run
from tests.contexts import make_context


@pytest.fixture
def fabricated(run_of):
    return run_of()


def test_the_stage_writes_both_files_and_returns_the_headline(fabricated):
    paths, _ = fabricated
    result = run(
        {"title": "Shapes, second try", "warmup_steps": 10}, make_context("report", paths.run_dir)
    )
    assert json.loads(json.dumps(result)) == result
    assert result["status"] == "completed"
    assert "<h1>Shapes, second try</h1>" in paths.report_html.read_text()
    written = json.loads(paths.report_json.read_text())
    assert written["format"] == "slurm-jobs-report-1"
    assert written["training"][0]["warmup_steps"] == 10
    assert sorted(p.name for p in paths.report_dir.iterdir()) == ["report.html", "report.json"]


def test_a_second_report_replaces_the_first(fabricated):
    paths, rows = fabricated
    build_and_write(paths)
    assert "no accounting" in paths.report_html.read_text()
    build_and_write(paths, rows)
    assert "no accounting" not in paths.report_html.read_text()


def test_the_report_imports_neither_torch_nor_pipeline():
    code = (
        "import sys, slurm_jobs.report.stage;"
        "print(sorted({'torch', 'pipeline', 'transformers', 'submitit'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
