"""Jobs that no wait starts, on a real Slurm, submitted, held and released by an ordinary user."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.config import CPU_NODES
from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("short")]

SPEC = """
name: held
cluster: auto
stages:
  a:
    run: user_stages:work
    config: {{hang: [0]}}
    resources: {{timeout_min: 10, slurm: {{partition: short, {options}}}}}
  b: {{run: "user_stages:work", after: a, resources: {{slurm: {{partition: cpu}}}}}}
"""


@pytest.fixture
def short(cluster: Cluster) -> Iterator[None]:
    """A partition of its own, whose limits a test may change."""
    cluster.create_partition("short", ",".join(CPU_NODES))
    yield
    cluster.cancel_all()
    wait_for(lambda: not cluster.squeue(), "an empty queue")
    cluster.delete_partition("short")


def _hold(cluster: Cluster, run_dir: Path, job_id: str) -> None:
    cluster.run_as_user(["scontrol", "hold", job_id])


def _requeue_held(cluster: Cluster, run_dir: Path, job_id: str) -> None:
    wait_for((run_dir / "tasks/a/s00000.a0001/hangs-0").exists, "the first attempt at work")
    cluster.run_as_user(["scontrol", "requeuehold", job_id])


def _exceed_the_partition(cluster: Cluster, run_dir: Path, job_id: str) -> None:
    cluster.limit_partition("short", 1)
    cluster.run_as_user(["scontrol", "update", f"JobId={job_id}", "StartTime=now"])


@pytest.mark.parametrize(
    ("make", "begin", "reason"),
    [
        (_hold, "now+1hour", "held (JobHeldUser)"),
        (_requeue_held, "now", "held (job requeued in held state)"),
        (_exceed_the_partition, "now+1hour", "can never start (PartitionTimeLimit: "),
    ],
)
def test_a_job_that_cannot_start_says_so_and_runs_once_after_a_resume(
    on_slurm: Driver,
    cluster: Cluster,
    make: Callable[[Cluster, Path, str], None],
    begin: str,
    reason: str,
) -> None:
    run_dir = on_slurm.submit_text(SPEC.format(options=f"begin: {begin}"))
    job_id = stage_of(on_slurm.status(run_dir), "a")["slices"][0]["job_id"]
    make(cluster, run_dir, job_id)

    status = wait_for(
        lambda: s if (s := on_slurm.status(run_dir))["status"] == "stranded" else None, "stranded"
    )
    own, below = stage_of(status, "a")["reason"], stage_of(status, "b")["reason"]
    assert own.startswith(reason)
    assert below == f"`a` {'is ' if own.startswith('held') else ''}{own}"
    shown = on_slurm.run("status", str(run_dir), check=1).stdout
    assert (f"`scontrol release {job_id}`" in shown) == own.startswith("held")
    assert own in on_slurm.run("watch", str(run_dir), check=1).stdout
    report = on_slurm.run("report", str(run_dir), check=None).stdout
    assert f"a stranded: {own}" in " ".join(report.split())  # lines are wrapped

    settings = ["--set", "stages.a.resources.slurm.begin=now"]
    settings += ["--set", "stages.a.resources.slurm.partition=cpu"]
    settings += ["--set", "stages.a.config.hang=[]"]
    resumed = on_slurm.json("resume", str(run_dir), *settings)
    assert job_id in resumed["cancelled"]
    assert words_of(on_slurm.wait(run_dir)) == {"a": "completed", "b": "completed"}
    cluster.wait_for_state(job_id, "CANCELLED")
    assert len(list((run_dir / "completions/a").iterdir())) == 1


def test_a_released_job_continues_and_a_cancelled_one_is_gone(
    on_slurm: Driver, cluster: Cluster
) -> None:
    on_slurm.write("spec.yaml", SPEC.format(options="hold: true").replace("hang: [0]", ""))
    for act in ("release", "cancel"):
        run_dir = on_slurm.submit("spec.yaml")
        status = on_slurm.status(run_dir)
        assert words_of(status) == {"a": "stranded", "b": "stranded"}
        job_id = stage_of(status, "a")["slices"][0]["job_id"]
        if act == "release":
            cluster.run_as_user(["scontrol", "release", job_id])
            assert words_of(on_slurm.wait(run_dir)) == {"a": "completed", "b": "completed"}
        else:
            cancelled = on_slurm.json("cancel", str(run_dir), "--yes")["cancelled"]
            assert job_id in cancelled
            wait_for(lambda: not cluster.squeue(), "an empty queue")
            assert on_slurm.status(run_dir)["status"] == "cancelled"


KINDS = ("afterok", "afterany", "afternotok", "aftercorr")
FAN = """
name: fan
cluster: auto
stages:
  fan: {run: "user_stages:work", array: {num_slices: 2}, resources: {slurm: {hold: true}}}
  pair: {run: "user_stages:work", array: {num_slices: 2}, after: {fan: aftercorr}}
  total: {run: "user_stages:work", after: pair}
  sorry: {run: "user_stages:work", after: {total: afternotok}}
  tell: {run: "user_stages:work", after: {total: afterany}}
  fails: {run: "user_stages:work", config: {exit: 3}}
  removed: {run: "user_stages:work", after: [fails, fan]}
  end: {run: "user_stages:work", after: {removed: afterany}}
"""


def test_watch_ends_where_all_that_is_left_waits_for_a_held_job(
    on_slurm: Driver, cluster: Cluster
) -> None:
    lines = [FAN]
    for first, second in itertools.product(KINDS, repeat=2):
        if second == KINDS[0]:
            lines.append(_array_after(first, {"fan": first}))
        lines.append(_array_after(f"{first}-{second}", {first: second}))
    run_dir = on_slurm.submit_text("".join(lines))
    on_slurm.run("watch", str(run_dir), check=1)
    status = on_slurm.status(run_dir)
    ended = {"fails": "failed", "end": "completed"}
    assert words_of(status) == {
        stage["name"]: ended.get(stage["name"], "stranded") for stage in status["stages"]
    }
    assert all("`fan`" in stage["reason"] for stage in status["stages"][1:5])

    job_id = status["stages"][0]["slices"][0]["job_id"].partition("_")[0]
    cluster.run_as_user(["scontrol", "release", job_id])
    words = words_of(on_slurm.wait(run_dir))
    assert (words["total"], words["tell"], words["sorry"]) == ("completed", "completed", "stranded")


def _array_after(name: str, after: dict[str, str]) -> str:
    """A line of the spec."""
    stage = {"shell": "true", "array": {"num_slices": 2}, "after": after}
    return f"  {name}: {json.dumps(stage)}\n"
