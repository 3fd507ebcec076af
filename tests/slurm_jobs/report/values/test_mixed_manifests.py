"""Manifests of a data set reach the terminal and the page with their shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.mixed_manifests import read_mixture
from tests.slurm_jobs.report.builders import printed

COUNTS = {"num_rows": 90, "num_rejected": 10, "num_tokens": 3_000}
RESULT = [
    {"name": "captions", "path": "/a", "num_samples": 30, **COUNTS},
    {"name": "vqa", "path": "/b", "num_samples": 10, **COUNTS, "num_tokens": 1_000},
]


def test_samples_and_tokens_of_each_manifest_are_in_the_report(report_of):
    report = report_of()
    data = replace(report.data[0], mixture=read_mixture(RESULT))
    for show in (printed, render_html):
        text = show(replace(report, data=(data,)))
        assert "captions" in text
        assert "3,000" in text
        assert "25 %" in text  # of the samples, and of the tokens


@pytest.mark.parametrize(
    "values",
    [None, [], [1], [{**RESULT[0], "name": 3}], [{**RESULT[0], "num_tokens": -1}], {"name": "a"}],
)
def test_damaged_results_have_no_mixture(values):
    assert read_mixture(values) == ()
