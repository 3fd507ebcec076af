"""The tables of efficiency in terminal and page."""

from __future__ import annotations

import pytest

from slurm_jobs.report.text.efficiency_text import lines_below, use_columns, use_rows
from tests.slurm_jobs.report.builders import report_from, with_rows

GIB = 2**30


@pytest.fixture
def memory_of(inputs_of):
    """Return the cell of memory of a stage whose one start has these numbers."""

    def make(**row_changes):
        report = report_from(with_rows(inputs_of(), "13", **row_changes))
        (row,) = (row for row in use_rows(report.efficiency) if row[0] == "consolidate")
        return row[1 + use_columns(report.efficiency).index("memory")]

    return make


@pytest.mark.parametrize(
    ("requested", "used", "state", "text"),
    [
        (8 * GIB, 6 * GIB, "COMPLETED", "6.00 of 8.00 GiB (75 %)"),
        (GIB / 2, 3.78 * GIB, "COMPLETED", "3.78 GiB of 512 MiB (756 %)"),
        (8 * GIB, GIB, "OUT_OF_MEMORY", "at least 8.00 of 8.00 GiB, killed"),
        (None, GIB, "COMPLETED", "1.00 GiB of -"),
        (8 * GIB, None, "COMPLETED", "- of 8.00 GiB"),
        (None, None, "COMPLETED", "-"),
    ],
)
def test_memory_used_is_next_to_the_request(memory_of, requested, used, state, text):
    row = {"requested_mem_bytes": requested, "max_rss_bytes": used, "state": state}
    assert memory_of(**row) == text


def test_every_dash_has_its_reason_below_the_table_once(report_of):
    lines = lines_below(report_of(with_accounting=False).efficiency)
    unknown = "cores, memory, time, hours, idle cores of preprocess, consolidate, train"
    assert lines == [f"{unknown}: no accounting for this stage's jobs"]


def test_without_gpus_there_is_no_column_for_them(inputs_of):
    inputs = inputs_of(stopped_at=None)
    assert "GPUs" in use_columns(report_from(inputs).efficiency)
    report = report_from(with_rows(inputs, "14", num_gpus=0))
    assert use_columns(report.efficiency) == ("cores", "memory", "time")
