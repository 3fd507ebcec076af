"""An array in which one task takes much longer than the others."""

from __future__ import annotations

from tests.slurm_jobs.report.builders import check, finding


def test_an_array_with_one_slow_task_is_called_unbalanced(report_of):
    report = report_of(task_times_s=(300.0, 310.0, 1200.0, 305.0, 290.0))
    found = finding(report, "array-imbalance", ":preprocess")
    assert "slice 2" in found.text
    assert check(report_of(), "array-imbalance", ":preprocess").outcome == "clear"
