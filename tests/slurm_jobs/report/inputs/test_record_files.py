"""A record that cannot be read is named, and the rest is read."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.timings.step_records import steps_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from tests.slurm_jobs.report.builders import edited, notes_with, report_on


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


def test_a_broken_record_is_named_and_the_rest_is_read(run):
    paths, _ = run
    paths.attempt("preprocess", 2, 1).write_text("{")
    steps_path(paths.timing_dir("train", 0, 1), 1).write_bytes(b"no header\n")
    inputs = read_inputs(paths, ())
    assert len(inputs.problems) == 2
    assert "s00002.a0001.json" in inputs.problems[0]
    assert [a.slice_index for a in inputs.stages[0].attempts] == [0, 1, 1, 3]


def test_a_record_with_a_value_of_another_type_is_a_note_in_the_report(run):
    paths, rows = run
    with edited(min(paths.attempts_dir("train").iterdir())) as record:
        record["started_unix_s"] = "x"
    with edited(min(paths.completions_dir("preprocess").iterdir())) as record:
        record["reason"] = None
    report = report_on(paths, rows)
    assert notes_with(report, "not read as an attempt record: damaged: 'x'")
    assert notes_with(report, "not read as a completion record")
