"""The test cluster behaves as a real one where the product depends on it."""

import time
from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.cluster import Cluster, wait_until
from tests.cluster.daemons import STOP_ORDER, running
from tests.cluster.host import private_folders
from tests.cluster.lifecycle import bring_down

pytestmark = pytest.mark.cluster


def _states(cluster: Cluster, job_id: int) -> list[str]:
    """Return the state of every start of the job or of its array tasks, without srun steps."""
    rows = cluster.sacct(job_id, fields=("JobID", "State"), duplicates=True)
    return [row["State"] for row in rows if "." not in row["JobID"]]


def _wait_for_accounting(cluster: Cluster, job_id: int, expected: list[str]) -> None:
    # The accounting hears of a change a little after the queue.
    wait_until(lambda: _states(cluster, job_id) == expected, f"sacct to show {expected}")


def test_a_job_runs_as_the_ordinary_user_and_is_accounted_for(cluster: Cluster, user_dir: Path):
    job = cluster.submit("id -un; sleep 2; exit 3", cwd=user_dir)
    cluster.wait_for_state(job, "FAILED")
    assert (user_dir / f"slurm-{job}.out").read_text() == f"{cluster.config.user}\n"
    _wait_for_accounting(cluster, job, ["FAILED"])
    whole = {"Partition": "cpu", "State": "FAILED", "ExitCode": "3:0"}  # comes in several messages
    wait_until(lambda: whole.items() <= _row(cluster, job).items(), "the whole row of the job")
    wait_until(lambda: _row(cluster, job, ".batch")["MaxRSS"] != "", "the batch step's memory")


def _row(cluster: Cluster, job: int, step: str = "") -> dict[str, str]:
    return next(row for row in cluster.sacct(job) if row["JobID"] == f"{job}{step}")


def test_jobs_run_the_python_of_the_tests(cluster: Cluster, user_dir: Path):
    job = cluster.submit(
        f"{cluster.python} -c 'import tests.cluster, sys; print(sys.prefix)'",
        "--output=out",
        "--chdir=" + str(user_dir),
        "--export=ALL,PYTHONPATH=" + str(Path(__file__).parents[2]),
        cwd=user_dir,
    )
    cluster.wait_for_state(job, "COMPLETED", "FAILED")
    out = (user_dir / "out").read_text()
    assert cluster.job_state(job) == "COMPLETED", out


def test_a_job_after_an_array_waits_for_all_its_tasks(cluster: Cluster, user_dir: Path):
    array = cluster.submit("sleep 1; touch done.$SLURM_ARRAY_TASK_ID", "--array=0,3", cwd=user_dir)
    child = cluster.submit("ls done.*", f"--dependency=afterok:{array}", cwd=user_dir)
    cluster.wait_for_state(child, "COMPLETED")
    assert (user_dir / f"slurm-{child}.out").read_text().split() == ["done.0", "done.3"]
    _wait_for_accounting(cluster, array, ["COMPLETED", "COMPLETED"])


@pytest.mark.parametrize(("kind", "node"), [("v100", "v1"), ("a100", "a2")])
def test_a_job_sees_the_gpus_it_requested(cluster: Cluster, user_dir: Path, kind: str, node: str):
    options = ["-p", "gpu", f"--gpus-per-node={kind}:2", f"--nodelist={node}"]
    job = cluster.submit('echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"', *options, cwd=user_dir)
    cluster.wait_for_state(job, "COMPLETED")
    assert (user_dir / f"slurm-{job}.out").read_text() == f"{node} 0,1\n"


def test_two_nodes_of_either_kind_are_of_one_kind(cluster: Cluster, user_dir: Path):
    options = ["-p", "gpu", "-N2", "--gpus-per-node=4", "--constraint=[v100|a100]"]
    script = "srun bash -c 'echo $SLURMD_NODENAME; getent hosts $SLURMD_NODENAME >/dev/null'"
    # One node of the kind that would be taken first is busy.
    busy = cluster.submit("sleep 60", "-p", "gpu", "--nodelist=v1", "--exclusive", cwd=user_dir)
    cluster.wait_for_state(busy, "RUNNING")
    job = cluster.submit(script, *options, cwd=user_dir)
    cluster.wait_for_state(job, "COMPLETED")
    nodes = sorted((user_dir / f"slurm-{job}.out").read_text().split())
    assert nodes == ["a1", "a2"]


@pytest.mark.slow
def test_preemption_signals_first_and_then_requeues(cluster: Cluster, user_dir: Path):
    script = """
    echo start >> events
    trap 'echo "USR2" >> events' USR2
    while true; do sleep 0.2; done"""
    options = ["--nodelist=cpu1", "--exclusive", "--open-mode=append"]
    low = cluster.submit(script, "-p", "low", "--signal=B:USR2@5", *options, cwd=user_dir)
    cluster.wait_for_state(low, "RUNNING")
    events = user_dir / "events"
    wait_until(events.exists, "the low job to start")
    high = cluster.submit("sleep 1", "-p", "high", *options, cwd=user_dir)
    wait_until(lambda: "USR2" in events.read_text(), "the signal of the preemption")
    assert cluster.job_state(high) == "PENDING"  # the grace time has only begun
    cluster.wait_for_state(high, "COMPLETED", timeout_s=cluster.config.grace_time_s + 40)
    wait_until(lambda: events.read_text().split() == ["start", "USR2", "start"], "a second start")
    assert cluster.job_info(low)["Restarts"] == "1"
    _wait_for_accounting(cluster, low, ["PREEMPTED", "RUNNING"])


def test_a_node_set_down_fails_its_job(cluster: Cluster, user_dir: Path):
    options = ["-p", "gpu", "--nodelist=a1", "--no-requeue"]
    job = cluster.submit("sleep 300", *options, cwd=user_dir)
    cluster.wait_for_state(job, "RUNNING")
    cluster.set_node_down("a1")
    cluster.wait_for_state(job, "NODE_FAIL")
    cluster.resume_node("a1")
    _wait_for_accounting(cluster, job, ["NODE_FAIL"])


@pytest.mark.slow
def test_a_job_outlives_a_restart_of_the_controller(cluster: Cluster, user_dir: Path):
    job = cluster.submit("sleep 4", cwd=user_dir)
    cluster.wait_for_state(job, "RUNNING")
    cluster.stop_daemon("slurmctld")  # killed, it would forget what it has not saved yet
    assert cluster.run_as_user(["squeue"], check=False).returncode != 0
    cluster.start_daemon("slurmctld")
    cluster.wait_for_state(job, "COMPLETED")


def test_accounting_answers_again_after_its_database_was_away(cluster: Cluster, user_dir: Path):
    cluster.stop_daemon("slurmdbd")
    cluster.stop_daemon("mariadb")
    job = cluster.submit("true", cwd=user_dir)
    cluster.wait_for_state(job, "COMPLETED")
    cluster.start_daemon("mariadb")
    cluster.start_daemon("slurmdbd")
    _wait_for_accounting(cluster, job, ["COMPLETED"])


def test_the_user_passes_through_every_folder_above_the_checkout(cluster: Cluster):
    # Those that are closed to others carry an entry for this user alone.
    closed = private_folders([Path(__file__).parents[2]], uid=12345)
    for folder in closed:
        assert cluster.run_as_user(["test", "-x", folder], check=False).returncode == 0


@pytest.mark.slow
def test_a_second_cluster_comes_and_goes_without_a_trace(cluster: Cluster):
    hosts = Path("/etc/hosts").read_text()
    folder = cluster.config.folder.with_name(cluster.config.folder.name + "-b")
    second = Cluster.up(folder)
    try:
        # A job with a child that left its session, a dead slurmd and a mounted disk are in the way.
        work = second.work_dir()
        job = second.submit("(setsid sleep 777 &); srun sleep 778", cwd=work)
        second.wait_for_state(job, "RUNNING")
        wait_until(lambda: len(second.sacct(job)) == 3, "the srun step")
        second.kill_slurmd("cpu1")
        second.small_disk(size_mb=1)
        assert len(processes.strays(folder, second.config.slurm_conf)) > len(STOP_ORDER)
    finally:
        second.down()
    assert processes.strays(folder, second.config.slurm_conf) == []
    assert not folder.exists()
    assert Path("/etc/hosts").read_text() == hosts
    assert all(running(cluster.config, name) for name in STOP_ORDER)


def test_down_leaves_a_folder_alone_that_is_not_a_clusters(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Exception, match="not a cluster's folder"):
        bring_down(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_healing_brings_back_what_a_test_broke(cluster: Cluster, user_dir: Path):
    cluster.submit("sleep 300", cwd=user_dir)
    cluster.stop_daemon("slurmd-v1")
    cluster.set_node_down("v2")
    start = time.monotonic()
    cluster.heal()
    assert time.monotonic() - start < 60
    assert cluster.squeue() == []
    assert [cluster.node_state(node) for node in ("v1", "v2")] == [["IDLE"], ["IDLE"]]
