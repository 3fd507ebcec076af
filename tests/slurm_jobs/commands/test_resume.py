"""What a resume requests after its resources were raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.commands.resume import ResumeRequest, resume
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm, queue_row

SPEC = """\
name: s
cluster: auto
stages:
  a:
    shell: "true"
    matrix: {r: [1]}
    resources: {mem_gb: 4, timeout_min: 10}
    on_resume: {raise_mem_gb: 2, raise_timeout_min: 2}
"""


@pytest.fixture
def raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run of one combination, which failed after its resources had been raised."""
    slurm = make_fake_slurm(tmp_path / "bin", monkeypatch)
    for program in ("scontrol", "sinfo", "sacctmgr"):
        slurm.says(program, "")
    slurm.says("sbatch", "Submitted batch job 1")
    (tmp_path / "spec.yaml").write_text(SPEC)
    paths = submit(load(tmp_path / "spec.yaml")).paths
    plan = read_json(paths.plan(1))
    plan["stages"][0]["resources"] |= {"mem_gb": 16.0, "timeout_min": 90.0}
    write_json_atomic(paths.plan(1), plan)
    slurm.says("squeue", queue_row("1", "FAILED"))
    return paths


def asked(paths: RunPaths, override: str) -> tuple[float | None, float]:
    request = ResumeRequest(overrides=(override,), update_spec=True, dry_run=True)
    (job,) = resume(paths.run_dir, request).plan.jobs
    return job.resources.mem_gb, job.resources.timeout_min


@pytest.mark.parametrize("name", ["a", "a-1"])
def test_what_was_raised_is_as_set_by_a_combinations_name_or_its_stages(
    raised: RunPaths, name: str
) -> None:
    assert asked(raised, f"stages.{name}.retries=1") == (16, 90)
    assert asked(raised, f"stages.{name}.resources.mem_gb=2") == (2, 90)
    assert asked(raised, f"stages.{name}.resources.timeout_min=5") == (16, 5)


@pytest.mark.parametrize(
    "whole",
    [
        "stages.a.resources={SET}",
        "stages.a={shell: 'true', matrix: {r: [1]}, resources: {SET}, on_resume: {RAISE}}",
        "stages={a: {shell: 'true', matrix: {r: [1]}, resources: {SET}, on_resume: {RAISE}}}",
    ],
)
def test_what_was_raised_stays_where_what_is_set_whole_does_not_say_it(
    raised: RunPaths, whole: str
) -> None:
    override = whole.replace("RAISE", "raise_mem_gb: 2, raise_timeout_min: 2")
    assert asked(raised, override.replace("SET", "mem_gb: 2")) == (2, 90)
    assert asked(raised, override.replace("SET", "mem_gb: 2, timeout_min: 5")) == (2, 5)
