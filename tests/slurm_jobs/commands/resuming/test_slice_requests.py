"""Memory and time for single slices: what a resume requests, keeps, and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.resume import ResumeRequest, Resumption, resume
from slurm_jobs.commands.resuming.slice_requests import plain_overrides
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

SPEC = """\
name: s
cluster: auto
stages:
  embed: {shell: "true", array: {num_slices: 4}, resources: {mem_gb: 4, timeout_min: 10}}
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = make_fake_slurm(tmp_path / "bin", monkeypatch)
    for program in ("scontrol", "sinfo", "sacctmgr"):
        slurm.says(program, "")
    slurm.says("sbatch", "Submitted batch job 1")
    return slurm


@pytest.fixture
def failed(tmp_path: Path, slurm: FakeSlurm) -> RunPaths:
    """A run of which all slices have failed."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    paths = submit(load(tmp_path / "spec.yaml")).paths
    slurm.says("squeue", "".join(queue_row(f"1_{index}", "FAILED") for index in range(4)))
    return paths


def requests(resumption: Resumption) -> dict[tuple[int, ...], tuple[float | None, float]]:
    return {
        job.slices: (job.resources.mem_gb, job.resources.timeout_min)
        for job in resumption.plan.jobs
    }


def test_chosen_slices_get_their_own_memory_and_time(failed: RunPaths) -> None:
    overrides = (
        "stages.embed[1,3].resources.mem_gb=16",
        "stages.embed[3].resources.timeout_min=60",
        "stages.embed.resources.mem_gb=5",
    )
    resumption = resume(failed.run_dir, ResumeRequest(overrides=overrides, dry_run=True))
    assert requests(resumption) == {(0, 2): (5, 10), (1,): (16, 10), (3,): (16, 60)}
    assert resumption.adjustments == (
        "embed: mem_gb 16 for slice 1",
        "embed: mem_gb 16, timeout_min 60 for slice 3",
    )


def test_the_run_keeps_what_slices_request(failed: RunPaths, slurm: FakeSlurm) -> None:
    slurm.says("sbatch", "Submitted batch job 2")
    override = "stages.embed[0-2].resources.mem_gb=16"
    first = resume(failed.run_dir, ResumeRequest(overrides=(override,)))
    orders = [read_order(failed.job_json(job.token)) for job in first.jobs]
    assert [(o.slices, o.resources.mem_gb) for o in orders] == [((0, 1, 2), 16), ((3,), 4)]
    slurm.says("squeue", "".join(queue_row(f"2_{index}", "FAILED") for index in range(4)))
    later = resume(failed.run_dir, ResumeRequest(update_spec=True, dry_run=True))
    assert requests(later) == {(0, 1, 2): (16, 10), (3,): (4, 10)}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.embed[4].resources.mem_gb=1", "has the slices 0 to 3"),
        ("stages.embed[].resources.mem_gb=1", "has the slices 0 to 3"),
        ("stages.embd[1].resources.mem_gb=1", "no stage `embd`"),
        ("stages.embed[1].resources.nodes=2", "mem_gb and timeout_min"),
        ("stages.embed[1].config.a=2", "mem_gb and timeout_min"),
        ("stages.embed[1].resources.mem_gb=-1", "greater than 0"),
        ("stages.embed[1].resources.mem_gb=much", "valid number"),
    ],
)
def test_a_wrong_request_for_slices_is_refused(
    failed: RunPaths, override: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resume(failed.run_dir, ResumeRequest(overrides=(override,), dry_run=True))


def test_an_override_for_all_slices_is_none_for_single_ones() -> None:
    plain = ["stages.embed.resources.mem_gb=16", "stages.a.config.words=[1,2]"]
    assert plain_overrides([*plain, "stages.embed[1].resources.mem_gb=16"]) == plain
