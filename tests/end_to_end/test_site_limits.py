"""What the cluster allows, asked of a real Slurm: refused before queueing, cut where it must be."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.conftest import STAGES
from tests.end_to_end.driver import Driver, stage_of, words_of

IMPOSSIBLE = """\
name: limits
cluster: auto
stages:
  a:
    shell: "true"
    resources:
      cpus_per_task: 9
      timeout_min: 2000
  b:
    shell: "true"
    resources: {gpus_per_node: 8, gpu: [a100], slurm: {partition: gpu}}
  c:
    shell: "true"
    resources: {slurm: {partition: gpus}}
"""


@pytest.mark.cluster
def test_what_the_cluster_could_never_run_is_refused_at_its_line(
    on_slurm: Driver, cluster: Cluster
) -> None:
    on_slurm.write("spec.yaml", IMPOSSIBLE)
    assert "no problems" in on_slurm.run("check", "spec.yaml").stdout
    for words in (["check", "--cluster"], ["plan"], ["submit"]):
        said = on_slurm.run(*words, "spec.yaml", check=2).stderr.splitlines()
        assert [line.partition(": ")[0].rpartition("/")[2] for line in said[:-1]] == [
            "spec.yaml:7:22",
            "spec.yaml:8:20",
            "spec.yaml:11:32",
            "spec.yaml:14:36",
        ]
        assert "9 cores a node" in said[0]
        assert "2000 minutes: more than the 1440 that cpu allows" in said[1]
        assert "8 a100 GPUs a node: more than the 4" in said[2]
        assert "did you mean `gpu`?" in said[3]
    answer = json.loads(on_slurm.run("plan", "spec.yaml", "--json", check=2).stdout)
    assert [problem["line"] for problem in answer["problems"]] == [7, 8, 11, 14]
    assert cluster.squeue() == []
    assert not (on_slurm.folder / "runs").exists()


@pytest.fixture(scope="module")
def small() -> Iterator[Cluster]:
    """A cluster of its own whose arrays end at index 2."""
    small = Cluster.up(Path(f"/var/tmp/slurm-jobs-short-{os.getpid()}"), max_array_size=3)
    yield small
    small.down()


@pytest.fixture
def short_arrays(small: Cluster) -> Iterator[Driver]:
    driver = Driver(small.work_dir("sj"), small)
    driver.write("user_stages.py", STAGES.read_text())
    yield driver
    small.cancel_all()


@pytest.mark.cluster
def test_an_array_beyond_the_largest_index_of_the_site_runs_in_pieces(
    cluster: Cluster,
    short_arrays: Driver,
) -> None:
    short_arrays.write(
        "spec.yaml",
        """
name: pieces
cluster: auto
stages:
  a:
    run: user_stages:work
    array: {num_slices: 8, max_running: 4}
    resources: {mem_gb: 0.2}
    config: {fail: {"4": 1}}
  b: {run: "user_stages:work", after: a, resources: {mem_gb: 0.2}}
""",
    )
    submitted = short_arrays.json("submit", "spec.yaml")
    assert [(job["stage"], job["num_tasks"]) for job in submitted["jobs"]] == [
        *(("a", 3), ("a", 3), ("a", 2), ("b", 1))
    ]
    run_dir = Path(submitted["run_dir"])
    orders = [json.loads(path.read_bytes()) for path in run_dir.glob("jobs/*/job.json")]
    shares = [order["max_running"] for order in orders if order["stage"] == "a"]
    assert sorted(shares) == [1, 1, 2]
    status = short_arrays.wait(run_dir)
    found = stage_of(status, "a")["slices_by_status"]
    assert found == {"completed": "0-3,5-7", "failed": "4"}
    assert stage_of(status, "b")["status"] == "stranded"
    resumed = short_arrays.json("resume", str(run_dir))
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [("a", "4"), ("b", "0")]
    assert short_arrays.wait(run_dir)["status"] == "completed"


@pytest.mark.cluster
def test_arrays_that_run_in_turns_are_stranded_when_the_first_is_held(short_arrays: Driver) -> None:
    short_arrays.write(
        "spec.yaml",
        """
name: turns
cluster: auto
stages:
  a:
    run: user_stages:work
    array: {num_slices: 8, max_running: 2}
    resources: {mem_gb: 0.2, slurm: {begin: now+1hour}}
  b: {run: "user_stages:work", after: {a: afterany}, resources: {mem_gb: 0.2}}
""",
    )
    submitted = short_arrays.json("submit", "spec.yaml")
    assert [job["stage"] for job in submitted["jobs"]] == ["a", "a", "a", "b"]
    run_dir = submitted["run_dir"]
    assert short_arrays.status(Path(run_dir))["status"] == "waiting"
    assert short_arrays.cluster is not None
    first = submitted["jobs"][0]["job_id"].partition("_")[0]
    short_arrays.cluster.run_as_user(["scontrol", "hold", first])
    short_arrays.run("watch", run_dir, check=1)
    status = short_arrays.status(Path(run_dir))
    assert words_of(status) == {"a": "stranded", "b": "stranded"}
    assert stage_of(status, "b")["reason"] == "`a` is held (JobHeldUser)"


@pytest.mark.slow  # Slurm looks at time limits twice a minute
@pytest.mark.cluster
def test_a_resume_raises_the_time_limit_and_excludes_the_failed_node(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run_dir = on_slurm.submit_stages(
        """\
  slow:
    run: user_stages:work
    resources: {timeout_min: 1, signal_lead_s: 0, mem_gb: 0.2}
    on_resume: {raise_timeout_min: 3}
    config: {hang: [0]}
  bad:
    run: user_stages:work
    resources: {mem_gb: 0.2}
    on_resume: {exclude_failed_nodes: true}
    config: {fail: {"0": 1}}
"""
    )
    status = on_slurm.wait(run_dir)
    assert stage_of(status, "slow")["slices"][0]["state"] == "TIMEOUT"
    record = json.loads((run_dir / "attempts/bad/s00000.a0001.json").read_text())
    (node,) = record["node_names"]
    resumed = on_slurm.json("resume", str(run_dir))
    assert resumed["adjusted"] == [
        "slow: timeout_min 1 -> 3 (out of time)",
        f"bad: without {node} (failed there)",
    ]
    jobs = {job["stage"]: job["job_id"] for job in resumed["jobs"]}
    assert cluster.job_info(jobs["slow"])["TimeLimit"] == "00:03:00"
    assert cluster.job_info(jobs["bad"])["ExcNodeList"] == node
    assert on_slurm.wait(run_dir)["status"] == "completed"
    again = json.loads((run_dir / "attempts/bad/s00000.a0002.json").read_text())
    assert again["node_names"] != [node]
