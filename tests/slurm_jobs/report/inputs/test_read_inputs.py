"""Records of a run as a report reads them, and those that are left out."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.report.inputs.read_inputs import parents_first, read_inputs
from slurm_jobs.report.inputs.step_columns import StepColumns
from tests.slurm_jobs.report.builders import notes_with, report_on, stage_of
from tests.slurm_jobs.report.numbers.resumed_run import removed
from tests.slurm_jobs.report.probed_nodes import at

__all__ = ["removed"]


def test_a_probe_that_cannot_be_read_is_a_note_and_no_traceback(run_of):
    paths, rows = run_of(num_steps=1, stopped_at=None)
    keep_probe(ProbePaths(paths.run_dir.parent), at("gpu-01"), 1).write_text("[]")
    assert notes_with(report_on(paths, rows), "not read as a probe")


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


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


def test_a_report_reads_columns_and_an_export_the_whole_records(run):
    for options, kind in (({}, StepColumns), ({"whole": True}, np.ndarray)):
        inputs = read_inputs(run[0], (), **options)
        assert isinstance(stage_of(inputs).timings[0].steps.steps, kind)


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
