"""Results are of the work that counts now, and numbers of an evaluation keep their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.formats.timings.step_records import spans_path, steps_header, steps_path
from slurm_jobs.report.numbers.current_results import evaluation_numbers, flat_numbers
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import add_span, edited, notes_with, stage_of
from tests.slurm_jobs.report.numbers.resumed_run import (
    LATER,
    cut_into_two,
    report_of_run,
    run,
    submit_again,
)

__all__ = ["run"]


def begin_again(run, step=None):
    """A training's job with another config; it loads what `step` steps made, and makes none."""
    submit_again(run, "train", "0", "30")
    run._attempt("train", 0, 3, "30", LATER, ("gpu-01",))
    if step is None:
        return
    with edited(run.paths.attempt("train", 0, 3)) as record:
        record["fingerprint"] = "0ther"
    folder = run.paths.timing_dir("train", 0, 3)
    add_span(folder, 0, "checkpoint_load", LATER, 1, step=step)
    steps_path(folder, 0).write_bytes(steps_header({"rank": 0}))


def end(run, outcome, **result):
    run._end("train", 0, 3, "30", LATER, LATER + 100, outcome, result=result)
    run._row("30", outcome.upper(), LATER - 9, LATER - 8, LATER, LATER + 100, num_gpus=2)


def test_an_abandoned_training_gives_no_result_to_one_that_failed(run):
    before = report_of_run(run)
    begin_again(run)
    end(run, "failed")
    report = report_of_run(run)
    assert report.header.status == "failed"
    assert not report.evaluation
    assert stage_of(report, "train").results == {}
    assert (report.tiles[-1].label, report.tiles[-1].value) == ("result", "n/a")
    assert report.tiles[-1].note == "the newest job has no step"
    assert notes_with(report, "train, all steps are of an earlier config")
    hours_before = stage_of(before, "train").gpu_hours.value
    hours = stage_of(report, "train").gpu_hours.value
    assert hours == pytest.approx(hours_before + 2 * 100 / 3600)
    assert report.training[0].num_steps == before.training[0].num_steps


@pytest.mark.parametrize("evaluation", [None, {"exact_match": 0.8, "num_samples": 50}])
def test_a_training_continued_only_to_export_has_the_loss_that_it_reached(run, evaluation):
    before = report_of_run(run).training[0].last_loss
    begin_again(run, 100)
    end(run, "completed", num_steps=100, resumed_from_step=100, evaluation=evaluation)
    report = report_of_run(run)
    assert report.header.status == "completed"
    assert report.tiles[-1].label == ("exact match" if evaluation else "loss")
    assert not report.training[0].is_earlier
    assert report.training[0].last_loss == before
    assert not notes_with(report, "all steps are of an earlier config")


def test_an_unfinished_training_owns_the_steps_before_its_checkpoint(run):
    begin_again(run, 100)
    assert report_of_run(run).tiles[-1].label == "loss"


def test_the_result_of_a_training_shows_the_resumed_step_without_spans(run):
    begin_again(run, 100)
    spans_path(run.paths.timing_dir("train", 0, 3), 0).unlink()
    assert report_of_run(run).training[0].is_earlier
    end(run, "completed", resumed_from_step=100)
    assert not report_of_run(run).training[0].is_earlier


def test_a_training_that_fails_before_its_first_step_has_no_result(run):
    begin_again(run, 0)
    end(run, "failed")
    report = report_of_run(run)
    assert report.tiles[-1].note == "the newest job has no step"
    assert report.training[0].is_earlier


def test_a_training_that_the_same_config_goes_on_with_keeps_its_loss(run):
    submit_again(run, "train", "0", "30", fingerprint="f1ng3r")
    report = report_of_run(run)
    assert not report.evaluation
    assert report.tiles[-1].label == "loss"
    assert not report.training[0].is_earlier


def test_without_a_ledger_the_last_completion_of_each_slice_counts(run):
    begin_again(run)
    end(run, "failed")
    cut_into_two(run)
    for entry in run.paths.ledger_dir.iterdir():
        entry.write_text("{")
    report = report_of_run(run)
    assert notes_with(report, "completion records alone decide what is done, because ")
    assert report.data[0].num_rows.value == 10_000
    assert report.data[0].num_slices_reported == 2
    assert report.evaluation
    assert not report.training[0].is_earlier


def test_numbers_are_found_in_nested_mappings_and_whole_ones_stay_whole():
    values = {"a": {"b": 1, "c": {"d": 0.5}}, "is_done": True, "name": "x", "n": 3}
    found = flat_numbers(values)
    assert found == {"a.b": 1, "a.c.d": 0.5, "n": 3}
    assert isinstance(found["a.b"], int)


def test_each_stage_has_an_evaluation_of_its_own(report_of):
    """A stage after the training, which evaluates on other samples."""
    report = report_of()
    train = stage_of(report, "train")
    results = {"evaluation.num_samples": 50, "preflight.memory.evaluation_bytes": 5}
    probe = replace(train, name="probe", results=results)
    found = evaluation_numbers([train, probe, stage_of(report, "consolidate")])
    assert [(e.stage, dict(e.numbers)) for e in found] == [
        ("train", {"exact_match": 0.93, "num_samples": 480}),
        ("probe", {"num_samples": 50}),
    ]
    assert report_to_json(report)["evaluation"] == [
        {"stage": "train", "numbers": {"exact_match": 0.93, "num_samples": 480}}
    ]
    assert "Evaluation: train" in render_html(report)


def test_two_values_of_one_name_both_stand_in_the_evaluation(report_of):
    train = stage_of(report_of())
    same = {"exact_match": 0.9, "evaluation.exact_match": 0.9}
    other = {"exact_match": 0.9, "evaluation.exact_match": 0.5}
    numbers = [
        dict(evaluation_numbers([replace(train, results=results)])[0].numbers)
        for results in (same, other)
    ]
    assert numbers == [{"exact_match": 0.9}, other]
