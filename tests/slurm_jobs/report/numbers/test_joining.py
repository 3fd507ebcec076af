"""Attempts and rows of the accounting are joined whatever a node's clock says."""

from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig


def with_clock(inputs, skew_s):
    """The nodes of the training told the time by a clock that is off by so much."""

    def moved(record, *names):
        return dataclasses.replace(record, **{n: getattr(record, n) + skew_s for n in names})

    stages = tuple(
        dataclasses.replace(
            stage,
            attempts=tuple(moved(a, "started_unix_s") for a in stage.attempts),
            completions=tuple(
                moved(c, "started_unix_s", "ended_unix_s") for c in stage.completions
            ),
        )
        if stage.name == "train"
        else stage
        for stage in inputs.stages
    )
    return dataclasses.replace(inputs, stages=stages)


def train_of(inputs):
    return next(s for s in build_report(inputs, ReportConfig()).stages if s.name == "train")


@pytest.mark.parametrize("skew_s", [-600.0, -60.0, -10.0, 60.0, 600.0])
@pytest.mark.parametrize("stopped_at", [None, 170])
def test_no_attempt_counts_twice_where_a_nodes_clock_is_off(
    fabrication, tmp_path, skew_s, stopped_at
):
    scenario = fabrication.Scenario(stopped_at=stopped_at)
    inputs = read_inputs(*fabrication.fabricate(tmp_path / "run", scenario))
    before, after = train_of(inputs), train_of(with_clock(inputs, skew_s))
    assert after.num_attempts == before.num_attempts
    assert after.failures == ()
    assert after.gpu_hours == before.gpu_hours


@pytest.mark.parametrize("skew_s", [-60.0, -10.0, 60.0])
def test_an_attempt_that_runs_counts_once_where_its_nodes_clock_is_off(
    fabrication, tmp_path, skew_s
):
    scenario = fabrication.Scenario(stopped_at=None)
    inputs = read_inputs(*fabrication.fabricate(tmp_path / "run", scenario))
    (row,) = (row for row in inputs.accounting if row.job_id == "14")
    runs = dataclasses.replace(row, state="RUNNING", end_unix_s=None)
    others = [row for row in inputs.accounting if row.job_id != "14"]
    stages = tuple(
        dataclasses.replace(s, completions=()) if s.name == "train" else s for s in inputs.stages
    )
    running = dataclasses.replace(
        inputs, stages=stages, accounting=(*others, runs), read_unix_s=row.end_unix_s
    )
    found = train_of(with_clock(running, skew_s))
    assert (found.num_attempts, found.max_running) == (1, 1)
    lasted_s = row.end_unix_s - row.start_unix_s
    assert found.gpu_hours.value == pytest.approx(2 * lasted_s / 3600)


def test_a_short_attempt_whose_clock_is_ahead_counts_once(fabrication, tmp_path):
    scenario = fabrication.Scenario(stopped_at=None)
    inputs = read_inputs(*fabrication.fabricate(tmp_path / "run", scenario))
    (row,) = (row for row in inputs.accounting if row.job_id == "14")
    short = dataclasses.replace(row, end_unix_s=row.start_unix_s + 31)
    others = [row for row in inputs.accounting if row.job_id != "14"]
    stages = tuple(
        dataclasses.replace(
            s,
            completions=tuple(
                dataclasses.replace(c, ended_unix_s=c.started_unix_s + 30) for c in s.completions
            ),
            timings=(),
        )
        if s.name == "train"
        else s
        for s in inputs.stages
    )
    changed = dataclasses.replace(inputs, stages=stages, accounting=(*others, short))
    assert train_of(with_clock(changed, 60.0)).num_attempts == 1
