"""Step records stored by field: the same values in less memory."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.report.inputs.step_columns import UNUSED, StepColumns


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


@pytest.fixture
def records(run):
    return read_steps(steps_path(run[0].timing_dir("train", 0, 1), 0)).steps


def test_fields_records_and_slices_are_those_of_the_records(records):
    columns = StepColumns.of(records)
    assert len(columns) == len(records)
    for name in set(records.dtype.names) - UNUSED:
        np.testing.assert_array_equal(columns[name], records[name])
        np.testing.assert_array_equal(columns[5:-3][name], records[name][5:-3])
        np.testing.assert_equal(columns[-1][name], records[-1][name])
    assert [row["step"] for row in columns[:4]] == [0, 1, 2, 3]
    chosen = records["checkpoint_s"] > 0
    found = columns.compress(chosen)
    assert len(found) == chosen.sum()
    np.testing.assert_array_equal(found["step"], records["step"][chosen])


def test_a_field_that_is_the_same_everywhere_takes_no_memory(records):
    columns = StepColumns.of(records)
    for name in ("forward_s", "num_microbatches", "device_step_s", "compile_s"):
        assert columns[name].strides == (0,)
    assert columns["step_s"].strides == (4,)
    assert StepColumns.of(records[:0])["step_s"].shape == (0,)


def test_other_values_for_a_copy_leave_the_first_as_it_was(records):
    columns = StepColumns.of(records)
    changed = columns.copy()
    changed["compile_s"] = changed["compile_s"] + 1
    assert (columns["compile_s"][0], changed["compile_s"][0]) == (0, 1)
