"""What the report of a run that tuned says of it."""

from __future__ import annotations

import dataclasses

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import SAID, TUNE_RUN, ReportConfig

SENTENCE = "1.36 times (95 % interval 1.1 to 1.69) as fast with strategy: ddp."


@pytest.fixture
def report_of(fabrication, tmp_path):
    """The report of a run whose `train` is `run`, and returned a sentence."""
    paths, rows = fabrication.fabricate(
        tmp_path / "run", fabrication.Scenario(stopped_at=None, num_steps=900)
    )
    inputs = read_inputs(paths, rows)

    def make(run):
        stages = []
        for stage in inputs.stages:
            if stage.name == "train":
                done = tuple(
                    dataclasses.replace(one, result={SAID: SENTENCE}) for one in stage.completions
                )
                changed = {"run": run, "completions": done}
                stages.append(dataclasses.replace(stage, **changed))
            else:
                stages.append(stage)
        return build_report(dataclasses.replace(inputs, stages=tuple(stages)), ReportConfig())

    return make


def test_the_report_of_a_tuning_says_what_it_found_and_which_command_tells_the_rest(report_of):
    report = report_of(TUNE_RUN)
    first = report.notes[0]
    assert SENTENCE in first
    assert f"`slurm-jobs tune {report.header.run_id}`" in first
    assert report.verdict.endswith(f"; {SENTENCE}")
    assert "no stage recorded training steps" not in report.notes
    assert not any(SENTENCE in note for note in report_of("train").notes)


def test_no_advice_is_given_on_a_time_limit_that_is_the_budget_of_a_tuning(report_of):
    def limit(run):
        checks = report_of(run).checks
        return next(check for check in checks if check.rule_id == "time-request:train")

    assert limit("train").outcome != "abstained"
    assert limit(TUNE_RUN).outcome == "abstained"
    assert "budget" in limit(TUNE_RUN).reason
