"""Results are of the work that counts now; the time of what it replaced stays."""

from __future__ import annotations

import dataclasses
import json

import pytest

from slurm_jobs.report.attempts import evaluation_numbers, flat_numbers
from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.report_model import report_to_json
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.files import read_json, write_json_atomic
from slurm_jobs.shared.timings import spans_path, steps_header, steps_path
from tests.slurm_jobs.report.fabricate_steps import CREATED

LATER = CREATED + 9000


@pytest.fixture
def run(fabrication, tmp_path):
    fabricator = fabrication.Fabricator(tmp_path / "run", fabrication.Scenario())
    fabricator.make()
    return fabricator


def submit_again(run, stage, slices, job_id, *, fingerprint="0ther"):
    intent = {
        "stage": stage,
        "slices": slices,
        "is_array": stage == "preprocess",
        "fingerprint": fingerprint,
        "job_name": f"shapes-{stage}",
        "base_attempts": {"0": 2},
    }
    append_entry(run.paths.ledger_dir, "intent", f"t{job_id}", intent)
    append_entry(run.paths.ledger_dir, "submitted", f"t{job_id}", {"job_id": job_id})


def cut_into_two(run):
    """A resume with half as many slices, each twice as long; both have completed."""
    spec = read_json(run.paths.resolved_spec)
    spec["stages"]["preprocess"]["array"]["num_slices"] = 2
    write_json_atomic(run.paths.resolved_spec, spec)
    submit_again(run, "preprocess", "0-1", "20")
    for index in (0, 1):
        place = ("preprocess", index, 5, f"20_{index}", LATER)
        result = {**run._slice_result(1), "num_rows": 5000}
        run._attempt(*place, ("cpu-01",))
        run._end(*place, LATER + 100, "completed", result=result)
        run._row(f"20_{index}", "COMPLETED", LATER - 9, LATER - 8, LATER, LATER + 100)


def fail_again(run):
    """A training with another config, which fails before its first step."""
    submit_again(run, "train", "0", "30")
    run._attempt("train", 0, 3, "30", LATER, ("gpu-01",))
    run._end("train", 0, 3, "30", LATER, LATER + 100, "failed", reason="loss is nan")
    run._row("30", "FAILED", LATER - 9, LATER - 8, LATER, LATER + 100, num_gpus=2)


def stage_of(report, name):
    return next(s for s in report.stages if s.name == name)


def report_of(run):
    return build_report(read_inputs(run.paths, run.accounting), ReportConfig())


def test_slices_that_an_array_no_longer_has_add_nothing_to_the_data(run):
    hours_before = stage_of(report_of(run), "preprocess").cpu_hours.value
    cut_into_two(run)
    report = report_of(run)
    data = report.data[0]
    assert (data.num_slices_reported, data.num_slices) == (2, 2)
    assert data.num_rows.value == 10_000
    assert stage_of(report, "preprocess").cpu_hours.value == pytest.approx(
        hours_before + 2 * 4 * 100 / 3600
    )


def test_a_slice_that_is_being_done_again_has_no_result_yet(run):
    submit_again(run, "preprocess", "1-2", "20")
    assert report_of(run).data[0].num_slices_reported == 2


def test_what_an_abandoned_training_reached_is_no_result_of_one_that_failed(run):
    before = report_of(run)
    fail_again(run)
    report = report_of(run)
    assert report.header.status == "failed"
    assert not report.evaluation
    assert stage_of(report, "train").results == {}
    assert (report.tiles[-1].label, report.tiles[-1].value) == ("result", "n/a")
    assert report.tiles[-1].note == "the newest job has no step"
    assert any(n.startswith("train, all steps are of an earlier config") for n in report.notes)
    hours_before = stage_of(before, "train").gpu_hours.value
    hours = stage_of(report, "train").gpu_hours.value
    assert hours == pytest.approx(hours_before + 2 * 100 / 3600)
    assert report.training[0].num_steps == before.training[0].num_steps


def begin_under_another_config(run, step):
    """A training's job that loaded what `step` steps made, and has made none so far."""
    submit_again(run, "train", "0", "30")
    run._attempt("train", 0, 3, "30", LATER, ("gpu-01",))
    path = run.paths.attempt("train", 0, 3)
    write_json_atomic(path, {**read_json(path), "fingerprint": "0ther"})
    folder = run.paths.timing_dir("train", 0, 3)
    folder.mkdir(parents=True)
    loaded = {"name": "checkpoint_load", "start_unix_s": LATER, "duration_s": 1, "step": step}
    spans_path(folder, 0).write_text(json.dumps(loaded) + "\n")
    steps_path(folder, 0).write_bytes(steps_header({"rank": 0}))


def end(run, outcome, **result):
    run._end("train", 0, 3, "30", LATER, LATER + 100, outcome, result=result)
    run._row("30", outcome.upper(), LATER - 9, LATER - 8, LATER, LATER + 100, num_gpus=2)


@pytest.mark.parametrize("evaluation", [None, {"exact_match": 0.8, "num_samples": 50}])
def test_a_training_that_went_on_to_export_and_evaluate_alone_has_the_loss_it_reached(
    run, evaluation
):
    before = report_of(run).training[0].last_loss
    begin_under_another_config(run, 100)
    end(run, "completed", num_steps=100, resumed_from_step=100, evaluation=evaluation)
    report = report_of(run)
    assert report.header.status == "completed"
    assert report.tiles[-1].label == ("exact match" if evaluation else "loss")
    assert not report.training[0].is_earlier
    assert report.training[0].last_loss == before
    assert not any("all steps are of an earlier config" in note for note in report.notes)


def test_the_checkpoint_that_an_unfinished_training_went_on_from_makes_its_steps_its_own(run):
    begin_under_another_config(run, 100)
    assert report_of(run).tiles[-1].label == "loss"


def test_what_a_training_returned_tells_where_it_went_on_from_without_its_spans(run):
    begin_under_another_config(run, 100)
    spans_path(run.paths.timing_dir("train", 0, 3), 0).unlink()
    assert report_of(run).training[0].is_earlier
    end(run, "completed", resumed_from_step=100)
    assert not report_of(run).training[0].is_earlier


def test_a_training_that_begins_at_step_0_and_fails_before_its_first_step_has_no_result(run):
    begin_under_another_config(run, 0)
    end(run, "failed")
    report = report_of(run)
    assert report.tiles[-1].note == "the newest job has no step"
    assert report.training[0].is_earlier


def test_a_training_that_the_same_config_goes_on_with_keeps_its_loss(run):
    submit_again(run, "train", "0", "30", fingerprint="f1ng3r")
    report = report_of(run)
    assert not report.evaluation
    assert report.tiles[-1].label == "loss"
    assert not report.training[0].is_earlier


def test_without_a_ledger_the_last_completion_of_each_slice_counts(run):
    fail_again(run)
    cut_into_two(run)
    for entry in run.paths.ledger_dir.iterdir():
        entry.write_text("{")
    report = report_of(run)
    assert any("not read as a ledger" in note for note in report.notes)
    assert report.data[0].num_rows.value == 10_000
    assert report.data[0].num_slices_reported == 2
    assert report.evaluation
    assert not report.training[0].is_earlier


def test_numbers_are_found_in_nested_mappings_and_whole_ones_stay_whole():
    values = {"a": {"b": 1, "c": {"d": 0.5}}, "is_done": True, "name": "x", "n": 3}
    found = flat_numbers(values)
    assert found == {"a.b": 1, "a.c.d": 0.5, "n": 3}
    assert isinstance(found["a.b"], int)


def test_each_stage_has_an_evaluation_of_its_own(run):
    """A stage after the training, which evaluates on other samples."""
    report = report_of(run)
    train = stage_of(report, "train")
    results = {"evaluation.num_samples": 50, "preflight.memory.evaluation_bytes": 5}
    probe = dataclasses.replace(train, name="probe", results=results)
    found = evaluation_numbers([train, probe, stage_of(report, "consolidate")])
    assert [(e.stage, dict(e.numbers)) for e in found] == [
        ("train", {"exact_match": 0.93, "num_samples": 480}),
        ("probe", {"num_samples": 50}),
    ]
    assert report_to_json(report)["evaluation"] == [
        {"stage": "train", "numbers": {"exact_match": 0.93, "num_samples": 480}}
    ]
    assert "Evaluation: train" in render_html(report)


def test_two_values_of_one_name_both_stand_in_the_evaluation(run):
    train = stage_of(report_of(run), "train")
    same = {"exact_match": 0.9, "evaluation.exact_match": 0.9}
    other = {"exact_match": 0.9, "evaluation.exact_match": 0.5}
    numbers = [
        dict(evaluation_numbers([dataclasses.replace(train, results=results)])[0].numbers)
        for results in (same, other)
    ]
    assert numbers == [{"exact_match": 0.9}, other]
