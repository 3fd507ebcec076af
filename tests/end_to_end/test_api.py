"""The functions for notebooks, in the tests' own process, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.api import Run, plan, submit
from slurm_jobs.base.errors import InputError, SpecError
from slurm_jobs.commands.resume import ResumeRequest
from tests.end_to_end.driver import Driver

SPEC = """
name: notebook
cluster: local
stages:
  a:
    run: user_stages:work
    array: {num_slices: 3}
    config: {fail: {"1": 1}}
  b: {shell: "echo b", after: a}
"""


def test_a_notebook_plans_submits_waits_resumes_and_reports(local: Driver) -> None:
    spec = local.write("spec.yaml", SPEC)
    planned = plan(spec, overrides=["stages.a.array.num_slices=2"])
    assert [(job.stage, job.num_tasks) for job in planned.jobs] == [("a", 2), ("b", 1)]
    assert not (local.folder / "runs").exists()

    run = submit(spec)
    status = run.wait()
    assert (status.status, status.stage("b").reason) == ("failed", "`a` failed")
    assert status.stage("a").counts == {"completed": 2, "failed": 1}

    dry = run.resume(ResumeRequest(dry_run=True))
    assert [(job.stage, job.slices) for job in dry.plan.jobs] == [("a", (1,)), ("b", (0,))]
    assert run.wait().status == "failed"
    assert [job.stage for job in run.resume().jobs] == ["a", "b"]
    assert run.wait().status == "completed"
    assert run.report().read_text().startswith("<!doctype html>")
    assert Run.find(str(spec)) == run
    assert run.cancel() == []


def test_what_is_wrong_is_raised_with_its_place(local: Driver, tmp_path: Path) -> None:
    spec = local.write("spec.yaml", SPEC.replace("shell:", "shel:"))
    with pytest.raises(SpecError) as caught:
        submit(spec)
    assert caught.value.problems[0].line == 9
    with pytest.raises(InputError, match="no run `"):
        Run.find(str(tmp_path / "nothing"))
