"""Communication that nothing is computed beside, from the tables that the profiler leaves."""

import dataclasses
import json

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.timings import OPERATORS_FORMAT_NAME, OperatorTable, operators_path
from tests.slurm_jobs.report import fabricate_run


@pytest.fixture
def report_of(tmp_path):
    """The report of two ranks of which each recorded so many seconds of exposed communication."""

    def make(*exposed_s, num_ranks=2):
        scenario = fabricate_run.Scenario(num_ranks=num_ranks, stopped_at=None, data_wait_s=0.01)
        paths, _ = fabricate_run.fabricate(tmp_path / "run", scenario)
        for rank, exposed in enumerate(exposed_s):
            table = OperatorTable(
                first_step=20,
                num_steps=3,
                wall_s=2.0,
                operators=[],
                communication_s=0.9,
                exposed_communication_s=exposed,
            )
            path = operators_path(paths.timing_dir("train", 0, 1), rank)
            path.write_text(
                json.dumps({"format": OPERATORS_FORMAT_NAME, **dataclasses.asdict(table)})
            )
        return build_report(read_inputs(paths, ()), ReportConfig())

    return make


def check(report):
    return next(c for c in report.checks if c.rule_id == "exposed-communication:train")


@pytest.mark.parametrize(("exposed_s", "severity"), [(0.3, "medium"), (0.5, "high")])
def test_exposed_communication_is_judged_by_the_band_of_pytorchs_profiler(
    report_of, exposed_s, severity
):
    report = report_of(0.01, exposed_s)
    (found,) = [f for f in report.findings if f.rule_id.startswith("exposed")]
    assert found.severity == severity
    assert found.evidence[0].startswith("rank 1, over 3 profiled steps: communication 45 %")
    assert found.ceiling.startswith("no exposed communication: at most 1.")


def test_communication_beside_computation_is_none(report_of):
    assert check(report_of(0.01, 0.02)).outcome == "clear"


def test_what_was_not_profiled_is_not_judged(report_of):
    assert check(report_of()).outcome == "abstained"


def test_one_rank_communicates_with_nobody(report_of):
    assert check(report_of(num_ranks=1)).outcome == "clear"


def test_a_table_that_cannot_be_read_is_a_problem_and_no_traceback(report_of, tmp_path):
    report_of(0.4)
    paths = fabricate_run.RunPaths(tmp_path / "run")
    operators_path(paths.timing_dir("train", 0, 1), 0).write_text("{}")
    problems = read_inputs(paths, ()).problems
    assert any("rank 00000: profile not read" in problem for problem in problems)
