"""What the variables of a user's shell may not hide, and may not change, on a real Slurm."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.driver import COMMAND, Driver, words_of

pytestmark = pytest.mark.cluster

FILTERS = {
    "SQUEUE_ACCOUNT": "nobody",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_NAMES": "other",
    "SQUEUE_PARTITION": "gpu",
    "SQUEUE_QOS": "none",
    "SQUEUE_STATES": "FAILED",
    "SQUEUE_USERS": "root",
    "SACCT_FORMAT": "JobID",
    "SINFO_PARTITION": "gpu",
    "SCANCEL_PARTITION": "gpu",
    "SCANCEL_STATE": "PENDING",
    "SLURM_TIME_FORMAT": "relative",
}
HOSTILE = {
    "SBATCH_ARRAY_INX": "5-9",
    "SBATCH_EXPORT": "HOME,PATH",
    "SBATCH_MEM_PER_CPU": "9999999",
    "SBATCH_NO_REQUEUE": "1",
    "SBATCH_OUTPUT": "/nonexistent/x",
    "SBATCH_SIGNAL": "KILL@3600",
    "SBATCH_TIMELIMIT": "1",
    "SLURM_DISTRIBUTION": "arbitrary",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_GRES": "gpu:9",
    "SLURM_HOSTFILE": "/nonexistent/hosts",
    "SLURM_MEM_PER_CPU": "9999999",
    "SLURM_THREADS_PER_CORE": "7",
    "SRUN_EXPORT_ENV": "NONE",
}
TWO_WAIT = """\
name: seen
cluster: auto
stages:
  a:
    shell: 'echo x >> starts-$SLURM_JOBS_SLICE; until [ -e go ]; do sleep 0.1; done'
    array: {num_slices: 2}
    resources: {timeout_min: 5, slurm: {partition: PARTITION}}
"""
TWO_RANKS = """\
name: ranks
cluster: auto
environment: {GREETING: hello}
stages:
  a:
    shell: 'echo $GREETING $RANK/$WORLD_SIZE >> said-$RANK'
    resources: {tasks_per_node: 2, mem_gb: 0.1, timeout_min: 5, slurm: {partition: cpu}}
"""

WAITS = """\
name: kept
cluster: auto
stages:
  a:
    shell: 'sleep 600'
    resources: {timeout_min: 15}
"""


@pytest.fixture
def hidden_partition(cluster: Cluster) -> Iterator[str]:
    cluster.create_partition("quiet", "cpu1", hidden=True)
    yield "quiet"
    cluster.cancel_all()
    cluster.delete_partition("quiet")


@pytest.fixture
def driver(cluster: Cluster, user_dir: Path) -> Driver:
    return Driver(user_dir, cluster)


def _run(driver: Driver, *words: str, env: Mapping[str, str]) -> Any:
    assert driver.cluster is not None
    done = driver.cluster.run_as_user(
        [*COMMAND, *words, "--json"], cwd=driver.folder, env=env, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


def test_jobs_in_a_hidden_partition_are_seen_whatever_a_shell_filters(
    driver: Driver, cluster: Cluster, hidden_partition: str
) -> None:
    spec = driver.write("spec.yaml", TWO_WAIT.replace("PARTITION", hidden_partition))
    run_dir = _run(driver, "submit", str(spec), env=FILTERS)["run_dir"]
    starts = [driver.folder / f"starts-{i}" for i in range(2)]
    wait_until(lambda: all(path.exists() for path in starts), "both slices", timeout_s=60)
    before = cluster.squeue()
    status = _run(driver, "status", run_dir, "--fresh", env=FILTERS)
    assert words_of(status) == {"a": "running"}
    _run(driver, "resume", run_dir, env=FILTERS)
    assert [row["job_id"] for row in cluster.squeue()] == [row["job_id"] for row in before]
    assert [path.read_text() for path in starts] == ["x\n", "x\n"]
    assert _run(driver, "cancel", run_dir, "--yes", env=FILTERS)["cancelled"]
    wait_until(lambda: cluster.squeue() == [], "an empty queue", timeout_s=60)


def test_a_job_that_is_submitted_in_an_allocation_is_as_its_spec_says(
    driver: Driver, cluster: Cluster
) -> None:
    spec = driver.write("spec.yaml", TWO_RANKS)
    variables = [f"{name}={value}" for name, value in HOSTILE.items()]
    command = [*COMMAND, "submit", str(spec), "--json"]
    allocation = ["salloc", "--quiet", "--partition=cpu", "--ntasks=3", "--mem-per-cpu=7"]
    done = cluster.run_as_user([*allocation, "env", *variables, *command], cwd=driver.folder)
    run_dir = Path(json.loads(done.stdout)["run_dir"])
    assert words_of(driver.wait(run_dir)) == {"a": "completed"}
    said = [(driver.folder / f"said-{rank}").read_text() for rank in range(2)]
    assert said == ["hello 0/2\n", "hello 1/2\n"]


def test_a_resume_keeps_the_partition_of_the_shell_that_submitted(
    driver: Driver, cluster: Cluster
) -> None:
    spec = driver.write("spec.yaml", WAITS)
    run_dir = _run(driver, "submit", str(spec), env={"SBATCH_PARTITION": "gpu"})["run_dir"]

    def resumed(*words: str, env: Mapping[str, str]) -> tuple[str, str]:
        assert _run(driver, "cancel", run_dir, "--yes", env={})["cancelled"]
        wait_until(lambda: cluster.squeue() == [], "an empty queue", timeout_s=60)
        notes = _run(driver, "resume", run_dir, *words, env=env)["notes"]
        (job,) = cluster.squeue()
        return job["partition"], "\n".join(n for n in notes if "SBATCH_PARTITION" in n)

    partition, note = resumed(env={})
    assert partition == "gpu"
    assert "SBATCH_PARTITION=gpu, set when this run was submitted, still applies to a" in note
    partition, note = resumed(env={"SBATCH_PARTITION": "cpu"})
    assert partition == "cpu"
    assert note.endswith("The run was submitted with SBATCH_PARTITION=gpu")
    for env in ({"SBATCH_PARTITION": ""}, {}):  # empty: dropped, also for later resumes
        assert "still applies" not in resumed(env=env)[1]
    assert resumed("--set", "stages.a.resources.slurm.partition=gpu", env={}) == ("gpu", "")
    assert _run(driver, "cancel", run_dir, "--yes", env={})["cancelled"]
    wait_until(lambda: cluster.squeue() == [], "an empty queue", timeout_s=60)
