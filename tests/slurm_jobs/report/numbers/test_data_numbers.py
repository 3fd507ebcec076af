"""Results of preprocessing are those of the slices that count now."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import stage_of
from tests.slurm_jobs.report.numbers.resumed_run import (
    cut_into_two,
    report_of_run,
    run,
    submit_again,
)

__all__ = ["run"]


def test_slices_that_an_array_no_longer_has_add_nothing_to_the_data(run):
    hours_before = stage_of(report_of_run(run), "preprocess").cpu_hours.value
    cut_into_two(run)
    report = report_of_run(run)
    data = report.data[0]
    assert (data.num_slices_reported, data.num_slices) == (2, 2)
    assert data.num_rows.value == 10_000
    assert stage_of(report, "preprocess").cpu_hours.value == pytest.approx(
        hours_before + 2 * 4 * 100 / 3600
    )


def test_a_slice_that_is_being_done_again_has_no_result_yet(run):
    submit_again(run, "preprocess", "1-2", "20")
    assert report_of_run(run).data[0].num_slices_reported == 2
