"""Values of a result that are damaged are left out and reported."""

from __future__ import annotations

import math

import pytest

from tests.slurm_jobs.report.builders import edited, notes_with, report_on, stage_of


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


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
