"""Fabricated runs and their reports; a run that several tests take is made once."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.formats.configs.stages import ReportConfig
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.numbers.build_report import build_report
from tests.slurm_jobs.report import fabricate_run


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Make a run with the given properties; return its paths and rows of accounting."""

    def make(**properties):
        run_dir = tmp_path_factory.mktemp("report") / "run"
        return fabricate_run.fabricate(run_dir, fabricate_run.Scenario(**properties))

    return make


@pytest.fixture(scope="session")
def inputs_of(run_of):
    """Return what is read of a run with the given properties: not to be changed in place."""
    known = {}

    def read(*, with_accounting=True, price=None, **properties):
        key = repr((with_accounting, price, sorted(properties.items())))
        if key not in known:
            paths, accounting = run_of(**properties)
            if price is not None:
                paths.spec_origin.write_text(json.dumps({"profile": {"price": price}}))
            known[key] = read_inputs(paths, accounting if with_accounting else ())
        return known[key]

    return read


@pytest.fixture(scope="session")
def report_of(inputs_of):
    """Return the report of a run with the given properties: `report_of(data_wait_s=0.2)`."""
    known = {}

    def make(*, num_epochs=None, **properties):
        key = repr((num_epochs, sorted(properties.items())))
        if key not in known:
            inputs = inputs_of(**properties)
            known[key] = build_report(inputs, ReportConfig(), num_epochs=num_epochs)
        return known[key]

    return make
