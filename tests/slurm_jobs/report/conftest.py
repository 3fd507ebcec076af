"""The fabricated run, for every test of the report."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.model import RunReport
from slurm_jobs.report.numbers import build_report


def _load() -> ModuleType:
    """The generator beside this file: tests are no package that could be imported from."""
    spec = importlib.util.spec_from_file_location(
        "report_fabricate", Path(__file__).with_name("fabricate.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fabrication() -> ModuleType:
    return _load()


@pytest.fixture
def report_of(fabrication, tmp_path):
    """Make a run with the given properties and its report: `report_of(data_wait_s=0.2)`."""

    def make(*, with_accounting: bool = True, **properties) -> RunReport:
        scenario = fabrication.Scenario(**properties)
        paths, accounting = fabrication.fabricate(tmp_path / "run", scenario)
        inputs = read_inputs(paths, accounting if with_accounting else ())
        return build_report(inputs, ReportConfig())

    return make
