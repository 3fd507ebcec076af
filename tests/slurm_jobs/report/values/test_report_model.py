"""A report as JSON has everything, and no number that JSON lacks."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.report.stage import build_and_write
from slurm_jobs.report.values.report_model import report_to_json


def test_json_has_kinds_and_losses(report_of) -> None:
    values = report_to_json(report_of())["attempts"][1]
    assert values["entries"][0]["ending"] == "preempted"
    assert values["lost"]["requeue_wait_s"] > 0


@pytest.fixture
def fabricated(run_of):
    return run_of()


def test_json_has_everything_and_no_nan(fabricated):
    paths, rows = fabricated
    report = build_and_write(paths, rows)

    def refuse(word):
        raise AssertionError(word)

    written = json.loads(paths.report_json.read_text(), parse_constant=refuse)
    assert written["training"][0]["num_steps"] == report.training[0].num_steps
    assert len(written["findings"]) == len(report.findings)
    assert written["spec"]["stages"]["train"]["config"]["batch_size"] == 32
