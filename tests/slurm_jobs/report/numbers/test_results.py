"""Results are of the work that counts now; the time of what it replaced stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.formats.configs.command_stages import SAID, TUNE_RUN
from slurm_jobs.formats.timings.step_records import spans_path, steps_header, steps_path
from slurm_jobs.report.inputs.read_inputs import parents_first
from slurm_jobs.report.numbers.current_results import evaluation_numbers, flat_numbers
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.text.data_lines import statistics_lines
from slurm_jobs.report.values.data_statistics import read_statistics
from slurm_jobs.report.values.report_model import report_to_json
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import name_of_job
from tests.slurm_jobs.report.builders import (
    add_span,
    check,
    edited,
    notes_with,
    printed,
    report_from,
    report_on,
    seconds_of,
    stage_of,
    with_stage,
)
from tests.slurm_jobs.report.fabricate_run import (
    CREATED,
    STATISTICS,
    Fabricator,
    Scenario,
    write_plan,
)

LATER = CREATED + 9000


@pytest.fixture
def run(tmp_path):
    fabricator = Fabricator(tmp_path / "run", Scenario())
    fabricator.make()
    return fabricator


def report_of_run(run):
    return report_on(run.paths, run.accounting)


def submit_again(run, stage, slices, job_id, *, fingerprint="0ther"):
    intent = {
        "stage": stage,
        "slices": slices,
        "is_array": stage == "preprocess",
        "fingerprint": fingerprint,
        "job_name": name_of_job(run.scenario.name, stage, f"t{job_id}"),
        "base_attempts": {"0": 2},
    }
    append_entry(run.paths.ledger_dir, "intent", f"t{job_id}", intent)
    append_entry(run.paths.ledger_dir, "submitted", f"t{job_id}", {"job_id": job_id})


def cut_into_two(run):
    """A resume with half as many slices, each twice as long; both have completed."""
    with edited(run.paths.resolved_spec) as spec:
        spec["stages"]["preprocess"]["array"]["num_slices"] = 2
    submit_again(run, "preprocess", "0-1", "20")
    for index in (0, 1):
        place = ("preprocess", index, 5, f"20_{index}", LATER)
        result = {**run._slice_result(1), "num_rows": 5000}
        run._attempt(*place, ("cpu-01",))
        run._end(*place, LATER + 100, "completed", result=result)
        run._row(f"20_{index}", "COMPLETED", LATER - 9, LATER - 8, LATER, LATER + 100)


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


# Data.


def test_the_cost_of_a_stored_image_is_shown(report_of):
    assert "86.9 KiB, read in 0.8 ms, 39.5 dB" in render_html(report_of())
    assert units.stored_image({"bytes": 512, "decode_ms": 2.345}) == (
        "512 B, read in 2.3 ms, lossless"
    )


@pytest.mark.parametrize(
    "values",
    [None, {}, {**STATISTICS, "num_tokens": None}, {**STATISTICS, "num_tokens_bins": [[1, 2]]}],
)
def test_statistics_of_another_version_are_none(values):
    assert read_statistics(values) is None


def test_text_alone_has_no_pixels():
    text = read_statistics({**STATISTICS, "num_pixels": None, "image_size": None})
    assert text.num_pixels is None
    assert not any("pixels" in line for line in statistics_lines(text))
    native = read_statistics({**STATISTICS, "image_size": None})
    assert statistics_lines(native)[-1] == (
        "pixels an image: median 147,456, p95 147,456, max 147,456"
    )


def test_data_without_images_has_no_size_of_images():
    none = dict.fromkeys(STATISTICS["num_images"], 0)
    lines = statistics_lines(read_statistics({**STATISTICS, "num_images": none}))
    assert lines[-1] == "images a sample: mean 0, max 0"


def test_the_page_shows_the_statistics(report_of, inputs_of):
    page = render_html(report_of())
    assert "64 to 128 tokens" in page
    assert ">1 image<" in page
    assert "31 % of all tokens" in page
    assert "supervised tokens a sample" in page
    counted = "to 16 tokens"  # the slices' own counts of lengths
    assert counted not in page
    bare = with_stage(inputs_of(), "consolidate", completions=lambda c: replace(c, result={}))
    assert counted in render_html(report_from(bare))


# A run that tuned.

SENTENCE = "1.36 times (95 % interval 1.1 to 1.69) as fast with strategy: ddp."


@pytest.fixture
def tuned(inputs_of):
    """Make the report of a run whose `train` is `run`, and returned a sentence."""

    def make(run):
        said = with_stage(
            inputs_of(stopped_at=None, num_steps=900),
            "train",
            run=run,
            completions=lambda one: replace(one, result={SAID: SENTENCE}),
        )
        return report_from(said)

    return make


def test_the_report_of_a_tuning_has_its_result_and_the_command_for_details(tuned):
    report = tuned(TUNE_RUN)
    assert SENTENCE in report.notes[0]
    assert f"`slurm-jobs tune {report.header.run_id}`" in report.notes[0]
    assert report.verdict.endswith(f"; {SENTENCE}")
    assert "no stage recorded training steps" not in report.notes
    assert not notes_with(tuned("train"), SENTENCE)


def test_no_advice_is_given_on_a_time_limit_that_is_the_budget_of_a_tuning(tuned):
    assert check(tuned("train"), "time-request").outcome != "abstained"
    limit = check(tuned(TUNE_RUN), "time-request")
    assert (limit.outcome, "budget" in limit.reason) == ("abstained", True)


# A stage that a resume took out of the spec.


@pytest.fixture
def removed(run_of):
    """A run of which a resume removed `preprocess`, after one of its tasks had failed."""
    paths, rows = run_of()
    with edited(paths.resolved_spec) as spec:
        write_plan(paths, 1, spec["stages"])
        del spec["stages"]["preprocess"]
        spec["stages"]["consolidate"]["after"] = {}
        write_plan(paths, 2, spec["stages"])
    for record in paths.completions_dir("preprocess").glob("s00001.a0002.*"):
        record.unlink()
    return paths, [replace(r, state="TIMEOUT") if r.job_id == "12_1" else r for r in rows]


def test_the_time_of_a_removed_stage_counts_but_it_decides_nothing(removed, report_of):
    report = report_on(*removed)
    before, after = seconds_of(report_of().timeline), seconds_of(report.timeline)
    for name in ("preprocess running", "queue wait", "job start, end, pauses", "unexplained"):
        assert after.get(name) == before.get(name)
    stage = stage_of(report, "preprocess")
    assert (stage.is_former, stage.num_tasks, stage.num_attempts) == (True, 4, 5)
    assert stage.cpu_hours.value > 1.0
    assert (stage.status, report.header.status) == ("failed", "completed")
    assert report.data == ()
    assert not any(":preprocess" in check.rule_id for check in report.checks)


def test_a_removed_stage_is_reported_as_not_in_the_spec_in_every_form(removed):
    report = report_on(*removed)
    label = "preprocess (former)"
    assert label in render_html(report)
    assert label in printed(report, 160)
    assert report_to_json(report)["stages"][1]["is_former"]
    assert notes_with(report, f"{label} is no longer in the spec")
    for width in range(70, 100, 3):
        assert "…" not in printed(report, width)  # the longer name cuts no number off


def test_a_job_of_a_stage_that_no_readable_plan_names_stops_no_report(removed):
    paths, rows = removed
    paths.plan(1).write_text("{")
    report = report_on(paths, rows)
    assert "preprocess" not in {stage.name for stage in report.stages}
    assert notes_with(report, "0001.json: not read as a plan")
    assert report.header.status == "completed"


@pytest.mark.parametrize(
    ("after", "order"),
    [
        pytest.param(
            {"a_last": ["middle", "first"], "middle": ["first"], "first": []},
            ["first", "middle", "a_last"],
            id="any order in the file",
        ),
        pytest.param({"b": ["a", "gone"], "a": []}, ["a", "b"], id="a parent that was removed"),
    ],
)
def test_stages_come_parents_first(after, order):
    stages = {name: {"after": dict.fromkeys(names, "afterok")} for name, names in after.items()}
    assert parents_first(stages) == order
