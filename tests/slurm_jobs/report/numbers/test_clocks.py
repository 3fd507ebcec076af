"""Clocks that were set while a run went on, or that disagree: no time is erased or invented."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from slurm_jobs.report.attempts import why_end_is_the_rows
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.records import CompletionRecord, TaskAccounting
from slurm_jobs.shared.timings import spans_path
from tests.slurm_jobs.report.fabricate_steps import STEP_DTYPE


def set_clock(fabrication, run_dir, by_s):
    """The inputs of a training in whose middle the clock of its node was set."""
    paths, rows = fabrication.fabricate(run_dir, fabrication.Scenario(stopped_at=None))
    folder = paths.timing_dir("train", 0, 1)
    for path in sorted(folder.glob("rank-*.steps")):
        header, _, body = path.read_bytes().partition(b"\n")
        records = np.frombuffer(body, STEP_DTYPE).copy()
        middle = records["start_unix_s"][200]
        records["start_unix_s"][200:] += by_s
        path.write_bytes(header + b"\n" + records.tobytes())
    for rank in (0, 1):
        spans = [json.loads(line) for line in spans_path(folder, rank).read_text().splitlines()]
        for span in spans:
            span["start_unix_s"] += by_s * (span["start_unix_s"] > middle)
        spans_path(folder, rank).write_text("".join(json.dumps(span) + "\n" for span in spans))
    inputs = read_inputs(paths, rows)
    stages = tuple(
        dataclasses.replace(
            stage,
            completions=tuple(
                dataclasses.replace(c, ended_unix_s=c.ended_unix_s + by_s)
                for c in stage.completions
            ),
        )
        if stage.name == "train"
        else stage
        for stage in inputs.stages
    )
    return dataclasses.replace(inputs, stages=stages)


@pytest.mark.parametrize("by_s", [-1800.0, 1800.0])
def test_a_clock_that_is_set_while_a_job_runs_neither_erases_nor_invents_time(
    fabrication, tmp_path, by_s
):
    right = build_report(set_clock(fabrication, tmp_path / "right", 0.0), ReportConfig())
    report = build_report(set_clock(fabrication, tmp_path / "set", by_s), ReportConfig())
    assert report.header.last_unix_s == pytest.approx(right.header.last_unix_s)
    lasted, found = (
        {share.name: share.seconds for share in each.timeline} for each in (right, report)
    )
    assert found == pytest.approx(lasted)
    lasted, found = (
        {share.name: share.seconds for share in each.training[0].budget} for each in (right, report)
    )
    assert found["steps"] == pytest.approx(lasted["steps"], rel=0.01)
    assert found["unexplained"] < lasted["unexplained"] + 10
    assert sum(found.values()) == pytest.approx(sum(lasted.values()))
    (note,) = [note for note in report.notes if "by the accounting" in note]
    assert note.startswith("train, slice 0, attempt 1, job 14: by its node's clock it took ")
    assert not any("by the accounting" in note for note in right.notes)


def test_set_up_lines_and_a_clock_that_is_off_throughout_contradict_nothing():
    row = TaskAccounting(
        job_id="1", state="COMPLETED", source="sacct", start_unix_s=1000.0, end_unix_s=2000.0
    )
    for begun, ended, is_set in (
        (1400.0, 1999.0, False),  # set-up lines took 400 s
        (400.0, 1399.0, False),  # the clock is 600 s behind
        (1600.0, 2599.0, False),  # it is 600 s ahead
        (1001.0, 1900.0, True),
        (1001.0, 2100.0, True),
    ):
        completion = CompletionRecord(
            stage="train", slice_index=0, attempt=1, job_id="1", token="t", outcome="completed",
            fingerprint="f", started_unix_s=begun, ended_unix_s=ended, exit_code=0,
        )  # fmt: skip
        assert bool(why_end_is_the_rows(begun, completion, row)) is is_set


@pytest.mark.parametrize("with_accounting", [True, False])
def test_a_run_begins_with_its_first_job_where_the_submitting_clock_is_ahead(
    fabrication, tmp_path, with_accounting
):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    inputs = read_inputs(paths, rows if with_accounting else ())
    right = build_report(inputs, ReportConfig())
    run = {**inputs.run, "created_unix_s": inputs.run["created_unix_s"] + 600}
    report = build_report(dataclasses.replace(inputs, run=run), ReportConfig())
    first_s = 3 if with_accounting else 35  # from when it really was created
    assert sum(share.seconds for share in report.timeline) == pytest.approx(
        sum(share.seconds for share in right.timeline) - first_s
    )
    running = [s.seconds for s in right.timeline if s.kind == "running"]
    assert [s.seconds for s in report.timeline if s.kind == "running"] == pytest.approx(running)
    assert report.header.created_unix_s == pytest.approx(right.header.created_unix_s + first_s)
    assert any(note.startswith("the clocks disagree: ") for note in report.notes)
    assert not any(note.startswith("the clocks disagree: ") for note in right.notes)
