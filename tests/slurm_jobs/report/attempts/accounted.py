"""Inputs of a report with other rows of the accounting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.slurm_jobs.report.builders import report_from, stage_of


@pytest.fixture
def inputs(inputs_of):
    return inputs_of(stopped_at=None)


@pytest.fixture
def requeued(inputs_of):
    return inputs_of()


def numbers_of(inputs, name="train"):
    return stage_of(report_from(inputs), name)


def last_rows_only(inputs, **changes):
    """Of a training that was requeued once only the last start has a row."""
    last = {row.job_id: replace(row, **changes) for row in inputs.accounting}
    return replace(inputs, accounting=tuple(last.values()))
