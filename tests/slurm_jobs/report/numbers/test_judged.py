"""Findings are of the config that the run has now."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig


@pytest.fixture
def resumed(fabrication, tmp_path):
    """A report of a training that waited 0.6 s a step for data up to a resume with a new config."""

    def make(num_steps):
        scenario = fabrication.Scenario(stopped_at=300, resumed_at=300, num_steps=num_steps)
        inputs = read_inputs(*fabrication.fabricate(tmp_path / f"run-{num_steps}", scenario))

        def changed(timing):
            if timing.steps is None or timing.attempt != 1:
                return timing
            steps = timing.steps.steps.copy()
            for name in ("data_wait_s", "step_s"):
                steps[name] += 0.54
            steps["start_unix_s"] += 0.54 * np.arange(len(steps))
            file = dataclasses.replace(timing.steps, steps=steps)
            return dataclasses.replace(timing, steps=file)

        stages = tuple(
            dataclasses.replace(
                stage,
                attempts=tuple(
                    dataclasses.replace(a, fingerprint=f"f{a.attempt}") for a in stage.attempts
                ),
                timings=tuple(changed(timing) for timing in stage.timings),
            )
            if stage.name == "train"
            else stage
            for stage in inputs.stages
        )
        intents = tuple(dataclasses.replace(i, fingerprint="f2") for i in inputs.intents)
        changed_inputs = dataclasses.replace(inputs, stages=stages, intents=intents)
        return build_report(changed_inputs, ReportConfig())

    return make


def test_a_wait_for_data_that_a_resume_mended_is_no_finding(resumed):
    report = resumed(500)
    titles = [finding.title for finding in report.findings]
    (title,) = [title for title in titles if "waits for data" in title]
    assert title.startswith("8")  # percent: as the newest config has it, not the mean of both
    (numbers,) = report.training
    assert (numbers.num_steps, numbers.num_measured) == (500, 490)
    assert any("are of the 195 measured steps under the newest" in note for note in report.notes)


def test_where_the_newest_config_has_few_steps_all_are_judged_and_a_note_says_so(resumed):
    report = resumed(315)
    assert any("waits for data" in finding.title for finding in report.findings)
    assert any("only 10 of the 305 measured steps are of the newest" in n for n in report.notes)


def test_one_config_has_no_note_on_another(report_of):
    assert not any("newest config and code" in note for note in report_of().notes)
