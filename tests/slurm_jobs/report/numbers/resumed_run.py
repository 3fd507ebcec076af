"""A run whose stages were submitted again, and one from which a resume removed a stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import name_of_job
from tests.slurm_jobs.report.builders import edited, report_on
from tests.slurm_jobs.report.fabricate_run import CREATED, Fabricator, Scenario, write_plan

LATER = CREATED + 9000


@pytest.fixture
def run(tmp_path):
    fabricator = Fabricator(tmp_path / "run", Scenario())
    fabricator.make()
    return fabricator


def report_of_run(run):
    return report_on(run.paths, run.accounting)


def submit_again(run, stage, slices, job_id, *, fingerprint="0ther"):
    intent = {
        "stage": stage,
        "slices": slices,
        "is_array": stage == "preprocess",
        "fingerprint": fingerprint,
        "job_name": name_of_job(run.scenario.name, stage, f"t{job_id}"),
        "base_attempts": {"0": 2},
    }
    append_entry(run.paths.ledger_dir, "intent", f"t{job_id}", intent)
    append_entry(run.paths.ledger_dir, "submitted", f"t{job_id}", {"job_id": job_id})


def cut_into_two(run):
    """A resume with half as many slices, each twice as long; both have completed."""
    with edited(run.paths.resolved_spec) as spec:
        spec["stages"]["preprocess"]["array"]["num_slices"] = 2
    submit_again(run, "preprocess", "0-1", "20")
    for index in (0, 1):
        place = ("preprocess", index, 5, f"20_{index}", LATER)
        result = {**run._slice_result(1), "num_rows": 5000}
        run._attempt(*place, ("cpu-01",))
        run._end(*place, LATER + 100, "completed", result=result)
        run._row(f"20_{index}", "COMPLETED", LATER - 9, LATER - 8, LATER, LATER + 100)


@pytest.fixture
def removed(run_of):
    """A run of which a resume removed `preprocess`, after one of its tasks had failed."""
    paths, rows = run_of()
    with edited(paths.resolved_spec) as spec:
        write_plan(paths, 1, spec["stages"])
        del spec["stages"]["preprocess"]
        spec["stages"]["consolidate"]["after"] = {}
        write_plan(paths, 2, spec["stages"])
    for record in paths.completions_dir("preprocess").glob("s00001.a0002.*"):
        record.unlink()
    return paths, [replace(r, state="TIMEOUT") if r.job_id == "12_1" else r for r in rows]
