"""The longest job of a stage is explained by its attempts, its start-up and its end."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.report.page.sections.stages_section import stages_section
from tests.slurm_jobs.report.builders import report_from, row_of, stage_of, with_rows
from tests.slurm_jobs.report.fabricate_array import report_on_ends


def test_a_job_that_was_retried_in_place_names_both_attempts(tmp_path):
    report = report_on_ends(tmp_path, ["completed", "retried"])
    stage = stage_of(report, "embed")
    assert stage.longest_s.value > stage.task_time.max_s
    assert stage.longest_job.startswith("job 12_1: attempt 1 failed after 20.0 s, attempt 2 comp")
    assert stage.longest_job.endswith("start, end and pauses 5.00 s")
    page = str(stages_section(report))
    assert (
        f"longest job of embed: {units.seconds(stage.longest_s.value)}, {stage.longest_job}" in page
    )


def test_a_requeued_job_is_explained_by_its_longest_start_alone(inputs_of):
    train = stage_of(report_from(inputs_of()))
    assert train.longest_job.startswith("job 14: attempt 2 completed after ")


def test_a_start_that_left_no_record_is_named_with_its_state(inputs_of):
    inputs = inputs_of(stopped_at=None)
    row = row_of(inputs, "14")
    dead = replace(
        row, state="NODE_FAIL", start_unix_s=row.start_unix_s - 9000,
        end_unix_s=row.start_unix_s - 60,
    )  # fmt: skip
    train = stage_of(report_from(with_rows(inputs, "14", dead, row)))
    assert train.longest_job == "job 14: NODE_FAIL before its supervisor started; see its log"


def test_without_accounting_there_is_no_longest_job(inputs_of):
    assert not stage_of(report_from(inputs_of(with_accounting=False))).longest_job
