"""Hours that were idle, and what is said where hours that were lost are not known."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.attempts.hours import efficiency_of, hours_of
from tests.slurm_jobs.report.builders import report_from, with_rows, with_stage


def test_idle_cores_are_those_of_the_work_that_counts(report_of):
    report = report_of(cpu_share=0.25)
    for name in ("preprocess", "consolidate", "train"):
        allocated, hours = efficiency_of(report, name).cpu_hours.value, hours_of(report, name)
        kept = allocated - hours["failed"] - hours["repeated"]
        assert hours["idle"] == pytest.approx(0.75 * kept)


def test_gpus_without_readings_have_unknown_idle_hours(report_of):
    idle = efficiency_of(report_of(), "train").waste[-1]
    assert idle.gpu_hours.value is None
    assert "no reading" in idle.gpu_hours.missing
    assert hours_of(report_of(), "preprocess", "gpu_hours")["idle"] == 0


def test_an_attempt_whose_end_is_unknown_makes_the_loss_a_lower_bound(inputs_of):
    inputs = inputs_of()
    done = with_rows(with_stage(inputs, "consolidate", completions=()), "13", state="COMPLETED")
    waste = efficiency_of(report_from(done), "consolidate").waste
    assert [each.cpu_hours.value for each in waste[:2]] == [0, 0]
    assert waste[0].cpu_hours.at_least == "it is not known how 1 attempt ended"


def test_without_accounting_no_hour_is_known_to_be_lost(report_of):
    report = report_of(with_accounting=False)
    assert hours_of(report, "preprocess") == {"failed": None, "repeated": None, "idle": None}
