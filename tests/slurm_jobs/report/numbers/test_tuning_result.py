"""What the report of a run that tuned says, and the advice that it does not give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.formats.configs.command_stages import SAID, TUNE_RUN
from tests.slurm_jobs.report.builders import check, notes_with, report_from, with_stage

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
