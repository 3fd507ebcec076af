"""A training whose records are read again with changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.report.inputs.read_inputs import read_inputs
from tests.slurm_jobs.report.builders import change_steps, report_from
from tests.slurm_jobs.report.fabricate_run import CREATED, Fabricator, Scenario


class Training(Fabricator):
    """A run of which the training is made start by start, and still goes on."""

    def __init__(self, run_dir, **properties) -> None:
        super().__init__(run_dir, Scenario(stopped_at=None, finished=False, **properties))
        self._write_run()
        self.begin = self._consolidate(self._preprocess() + 20) + 5

    def start(self, attempt, at, steps=None, *, job_id="14"):
        """An attempt, with its steps if it comes to any; when its loop ended."""
        self._attempt("train", 0, attempt, job_id, at, ("gpu-01",))
        return at if steps is None else self._steps(attempt, at, *steps)

    def row(self, state, at, end=None, *, job_id="14", limit_s=3600.0, **values):
        self.accounting.append(
            TaskAccounting(
                **{
                    "job_id": job_id, "job_name": self._job_name(job_id), "state": state,
                    "source": "sacct",
                    "submit_unix_s": CREATED + 4, "eligible_unix_s": at - 5, "start_unix_s": at,
                    "end_unix_s": end, "num_cpus": 4, "num_gpus": 2, "time_limit_s": limit_s,
                    "node_list": "gpu-01", **values,
                }
            )
        )  # fmt: skip

    def change(self, attempt, change=None, **metadata):
        change_steps(self.paths.timing_dir("train", 0, attempt), change, **metadata)

    def plan(self, attempt, num_steps):
        """Say in the records how many steps the training is to have."""
        self.change(attempt, num_steps=num_steps)

    def report(self, now=None):
        inputs = read_inputs(self.paths, self.accounting)
        return report_from(inputs if now is None else replace(inputs, read_unix_s=now))

    def ahead(self, now=None):
        (found,) = self.report(now).projections
        return found


@pytest.fixture
def training(tmp_path):
    return Training(tmp_path / "run")
