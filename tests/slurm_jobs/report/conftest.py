"""The fabricated run, for every test of the report."""

from __future__ import annotations

import itertools
import json

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.report_model import RunReport
from slurm_jobs.shared.configs.stages import ReportConfig

# Tests are no package that could be imported from.
from tests.slurm_jobs.report import fabricate_run


@pytest.fixture
def fabrication():
    return fabricate_run


@pytest.fixture
def report_of(tmp_path):
    """Make a run with the given properties and its report: `report_of(data_wait_s=0.2)`.

    `report_of.inputs` are what the last one was made from.
    """
    numbers = itertools.count()

    def make(
        *, with_accounting: bool = True, price=None, num_epochs=None, **properties
    ) -> RunReport:
        scenario = fabricate_run.Scenario(**properties)
        run_dir = tmp_path / f"run-{next(numbers)}"
        paths, accounting = fabricate_run.fabricate(run_dir, scenario)
        if price is not None:
            paths.spec_origin.write_text(json.dumps({"profile": {"price": price}}))
        make.inputs = read_inputs(paths, accounting if with_accounting else ())
        return build_report(make.inputs, ReportConfig(), num_epochs=num_epochs)

    return make
