"""Records of a run as the report reads them: columns, and damage that is named."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.timings.step_records import read_steps, spans_path, steps_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.inputs.step_columns import UNUSED, StepColumns
from tests.slurm_jobs.report.builders import edited, notes_with, report_on, stage_of
from tests.slurm_jobs.report.fabricate_run import STEP_DTYPE


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


# Step records field by field, which take no memory for constants.


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


def test_a_report_reads_columns_and_an_export_the_whole_records(run):
    for options, kind in (({}, StepColumns), ({"whole": True}, np.ndarray)):
        inputs = read_inputs(run[0], (), **options)
        assert isinstance(stage_of(inputs).timings[0].steps.steps, kind)


# Damage.


def test_a_broken_record_is_named_and_the_rest_is_read(run):
    paths, _ = run
    paths.attempt("preprocess", 2, 1).write_text("{")
    steps_path(paths.timing_dir("train", 0, 1), 1).write_bytes(b"no header\n")
    inputs = read_inputs(paths, ())
    assert len(inputs.problems) == 2
    assert "s00002.a0001.json" in inputs.problems[0]
    assert [a.slice_index for a in inputs.stages[0].attempts] == [0, 1, 1, 3]


def test_a_span_that_is_no_mapping_is_named_and_the_report_is_made(run):
    paths, rows = run
    with spans_path(paths.timing_dir("train", 0, 1), 0).open("a") as stream:
        stream.write("null\n")
    report = report_on(paths, rows)
    assert "s00000.a0001, rank 0: 1 damaged line of spans left out" in report.notes
    assert "export" in {share.name for share in report.training[0].budget}


def test_step_records_that_a_crash_left_as_zeros_are_no_measurements(run):
    paths, rows = run
    for rank in (0, 1):
        file = steps_path(paths.timing_dir("train", 0, 1), rank)
        file.write_bytes(file.read_bytes()[:-4096] + bytes(4096))
    report = report_on(paths, rows)
    num_lost = math.ceil(4096 / STEP_DTYPE.itemsize)
    for rank in (0, 1):
        told = f"s00000.a0001, rank {rank}: {num_lost} step records left out, from the first"
        assert f"{told} damaged one on" in report.notes
    training = report.training[0]
    assert training.num_steps == 400 - num_lost
    assert 0.1 < training.last_loss.value < 0.4
    assert not notes_with(report, "clock")


def test_no_file_of_the_report_folder_replaces_the_accounting(run):
    paths, rows = run
    paths.report_dir.mkdir()
    left = paths.report_dir / "accounting.json"
    write_json_atomic(left, [record_to_json(row) for row in rows])
    assert read_inputs(paths, ()).accounting == ()
    assert read_inputs(paths, rows[:1]).accounting == tuple(rows[:1])


def test_a_folder_that_is_no_run_is_refused(run):
    paths, _ = run
    paths.run_json.unlink()
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        read_inputs(paths, ())


@pytest.mark.parametrize("result", [[1, 2], "done", 7, True])
def test_a_result_that_is_no_mapping_is_left_out_and_reported(run, result):
    paths, rows = run
    (path,) = paths.completions_dir("consolidate").iterdir()
    with edited(path) as record:
        record["result"] = result
    report = report_on(paths, rows)
    assert report.header.status == "completed"
    assert stage_of(report, "consolidate").results == {}
    assert notes_with(report, "its result is not a mapping")


@pytest.mark.parametrize(
    "changed",
    [
        {"num_samples": math.nan},
        {"write_s": -1},
        {"decode_s": None},
        {"rejects_by_reason": -1},
        {"num_tokens_histogram": {"16": math.nan}},
        {"num_tokens_histogram": {"x": 3}},
        {"stored_image": {"num_measured": None, "bytes": 1.0, "decode_ms": 1.0, "psnr_db": None}},
        {"stored_image": {"num_measured": 3, "bytes": None, "decode_ms": 1.0, "psnr_db": None}},
    ],
)
def test_values_of_a_result_that_are_damaged_are_left_out_with_a_note(run, changed):
    paths, rows = run
    with edited(min(paths.completions_dir("preprocess").iterdir())) as record:
        record["result"] |= changed
    assert notes_with(report_on(paths, rows), "its result has values that are damaged")


def test_the_note_on_a_result_and_its_damaged_values_are_both_reported(run):
    paths, rows = run
    (path,) = paths.completions_dir("train").iterdir()
    with edited(path) as record:
        record["result"]["best"] = {"loss": "NaN", "step": 3, "big": 10**400}
        record["result_note"] = "no finite number in its result for `best.loss`"
    report = report_on(paths, rows)
    assert notes_with(report, "no finite number in its result for `best.loss`")
    assert notes_with(report, "values that are damaged")
    assert stage_of(report, "train").results["best.step"] == 3
    assert "best.loss" not in stage_of(report, "train").results


@pytest.mark.parametrize(("loss", "is_noted"), [("NaN", False), (math.nan, True)])
def test_a_text_in_a_result_is_no_damaged_number(run, loss, is_noted):
    paths, rows = run
    (path,) = paths.completions_dir("train").iterdir()
    with edited(path) as record:
        record["result"]["label"] = loss
    report = report_on(paths, rows)
    assert bool(notes_with(report, "its result has values that are damaged")) is is_noted
    assert not notes_with(report, "no finite number")


def test_a_record_with_a_value_of_another_type_is_a_note_in_the_report(run):
    paths, rows = run
    with edited(min(paths.attempts_dir("train").iterdir())) as record:
        record["started_unix_s"] = "x"
    with edited(min(paths.completions_dir("preprocess").iterdir())) as record:
        record["reason"] = None
    report = report_on(paths, rows)
    assert notes_with(report, "not read as an attempt record: damaged: 'x'")
    assert notes_with(report, "not read as a completion record")
