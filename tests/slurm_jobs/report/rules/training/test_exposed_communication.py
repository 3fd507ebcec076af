"""Communication that does not overlap with computation, by operators that are made up."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import finding, outcomes, report_on
from tests.slurm_jobs.report.profiled_ranks import exchanged

__all__ = ["exchanged"]

ENDED = {"stopped_at": None, "data_wait_s": 0.01}


@pytest.mark.parametrize(("exposed_s", "severity"), [(0.3, "medium"), (0.5, "high")])
def test_exposed_communication_is_judged_by_the_band_of_pytorchs_profiler(
    exchanged, exposed_s, severity
):
    found = finding(report_on(exchanged(0.01, exposed_s)), "exposed-communication")
    assert found.severity == severity
    assert found.evidence[0].startswith("In 3 profiled steps of rank 1, communication takes 45 %")
    assert found.ceiling.startswith("no exposed communication: at most 1.")


@pytest.mark.parametrize(
    ("exposed_s", "num_ranks", "outcome"),
    [
        pytest.param((0.01, 0.02), 2, "clear", id="during computation"),
        pytest.param((), 2, "abstained", id="not profiled"),
        pytest.param((), 1, "clear", id="one rank"),
    ],
)
def test_communication_that_no_step_waits_for_is_no_finding(
    exchanged, exposed_s, num_ranks, outcome
):
    report = report_on(exchanged(*exposed_s, num_ranks=num_ranks))
    assert outcomes(report, "exposed-communication") == (outcome,)
