"""A job that takes one of several types of GPU keeps to it, on the test cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_jobs.base.index_ranges import ranges_text
from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, wait_for

SPEC = """
name: kinds
cluster: auto
stages:
  work:
    shell: |
      touch began-$SLURM_JOBS_ATTEMPT
      until test -e go; do sleep 0.1; done
      test ! -e broken
    resources:
      {gpus_per_node: 1, gpu: [v100, a100], mem_gb: 0.2, timeout_min: 5, slurm: {partition: gpu}}
"""


def _kinds(run_dir: Path) -> list[str]:
    paths = sorted((run_dir / "attempts" / "work").iterdir())
    return [json.loads(path.read_text())["gpu"] for path in paths]


SLICES = """
name: kinds
cluster: auto
stages:
  work:
    shell: |
      touch began-$SLURM_JOBS_SLICE
      until test -e go; do sleep 0.1; done
      test ! -e broken
    array: {num_slices: 4}
    resources:
      {gpus_per_node: 4, gpu: [v100, a100], mem_gb: 0.2, timeout_min: 5, slurm: {partition: gpu}}
"""


def _begin(driver: Driver) -> tuple[Driver, Path, str]:
    driver.write("spec.yaml", SPEC)
    submitted = driver.json("submit", "spec.yaml")
    wait_for((driver.folder / "began-1").exists, "the first attempt")
    return driver, Path(submitted["run_dir"]), submitted["jobs"][0]["job_id"]


@pytest.fixture
def begun(on_slurm: Driver, cluster: Cluster) -> Iterator[tuple[Driver, Path, str]]:
    """A run whose only job is at work on a V100, and the job's id."""
    yield _begin(on_slurm)
    cluster.heal()


@pytest.fixture
def begun_on_a_feature() -> Iterator[tuple[Driver, Path, str]]:
    """The same on a cluster of its own, whose GPUs have no types: its nodes have features."""
    untyped = Cluster.up(Path(f"/var/tmp/slurm-jobs-untyped-{os.getpid()}"), typed_gpus=False)
    try:
        yield _begin(Driver(untyped.work_dir("sj"), untyped))
    finally:
        untyped.down()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_job_that_starts_on_another_gpu_type_returns_to_its_first_type(
    begun: tuple[Driver, Path, str], cluster: Cluster
) -> None:
    driver, run_dir, job_id = begun
    assert _kinds(run_dir) == ["v100"]
    # Its node fails, and no other V100 is there: Slurm starts it on an A100.
    for node in ("v1", "v2"):
        cluster.set_node_down(node)
    wait_for(lambda: cluster.job_info(job_id)["Features"] == "v100", "the job to ask for a V100")
    assert _kinds(run_dir) == ["v100"]  # nothing was done on the A100
    for node in ("v1", "v2"):
        cluster.resume_node(node)
    wait_for((driver.folder / "began-2").exists, "the second attempt")
    driver.write("go", "")
    assert driver.wait(run_dir)["status"] == "completed"
    assert _kinds(run_dir) == ["v100", "v100"]


@pytest.mark.cluster
@pytest.mark.usefixtures("cluster")  # where there can be none, this is skipped
@pytest.mark.parametrize("where", ["begun", "begun_on_a_feature"])
def test_a_resume_asks_for_the_type_that_the_work_was_begun_on(
    where: str, request: pytest.FixtureRequest
) -> None:
    driver, run_dir, _ = request.getfixturevalue(where)
    driver.write("broken", "")
    driver.write("go", "")
    assert driver.wait(run_dir)["status"] == "failed"
    (driver.folder / "broken").unlink()
    resumed = driver.json("resume", str(run_dir))
    assert resumed["adjusted"] == ["work: gpu v100 only (started on it)"]
    assert driver.wait(run_dir)["status"] == "completed"
    assert _kinds(run_dir) == ["v100", "v100"]


@pytest.mark.cluster
def test_each_slice_of_an_array_goes_on_on_the_type_that_it_was_begun_on(on_slurm: Driver) -> None:
    on_slurm.write("spec.yaml", SLICES)
    on_slurm.write("broken", "")
    run_dir = on_slurm.submit("spec.yaml")
    for index in range(4):  # one on each node
        wait_for((on_slurm.folder / f"began-{index}").exists, f"slice {index}")
    on_slurm.write("go", "")
    assert on_slurm.wait(run_dir)["status"] == "failed"
    begun = _kinds(run_dir)
    assert sorted(begun) == ["a100", "a100", "v100", "v100"]
    (on_slurm.folder / "broken").unlink()
    resumed = on_slurm.json("resume", str(run_dir))
    assert sorted(resumed["adjusted"]) == [
        f"work: gpu {kind} only for slices {_ranges(begun, kind)} (started on it)"
        for kind in ("a100", "v100")
    ]
    assert on_slurm.wait(run_dir)["status"] == "completed"
    assert _kinds(run_dir) == [kind for kind in begun for _ in range(2)]  # by slice, then attempt


def _ranges(kinds: list[str], kind: str) -> str:
    return ranges_text([index for index, found in enumerate(kinds) if found == kind])
