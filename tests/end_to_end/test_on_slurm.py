"""The same on a real Slurm, submitted by an ordinary user."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_jobs.run_folder.ledger import read_ledger
from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.demo import (
    STAGES,
    copy_configs,
    data_set,
    held,
    kill_preprocess_and_train,
    require_same,
    small,
    weights,
)
from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of

pytestmark = pytest.mark.cluster

ON_SLURM = ["--set", "cluster=clusters/test-cluster.yaml"]


def _train_on(nodes: int, ranks: int, gpus: int) -> list[str]:
    values = {"nodes": nodes, "tasks_per_node": ranks, "gpus_per_node": gpus, "gpu": "[v100, a100]"}
    return [
        word
        for key, value in values.items()
        for word in ("--set", f"stages.train.resources.{key}={value}")
    ]


@pytest.mark.slow
def test_demo_on_two_nodes_of_two_ranks_makes_the_same_shards(
    on_slurm: Driver, undisturbed: Path
) -> None:
    spec = copy_configs(on_slurm)
    done = on_slurm.run("run", spec, *small(), *ON_SLURM, *_train_on(2, 2, 2))
    assert "Completed" in done.stdout
    run_dir = next((on_slurm.folder / "runs").iterdir())
    assert words_of(on_slurm.status(run_dir)) == dict.fromkeys(STAGES, "completed")
    require_same(data_set(run_dir), data_set(undisturbed))
    attempt = json.loads((run_dir / "attempts/train/s00000.a0001.json").read_text())
    assert attempt["num_ranks"] == 4
    assert set(attempt["node_names"]) in ({"v1", "v2"}, {"a1", "a2"})
    staged = {
        json.loads((run_dir / f"tasks/train/s00000.a0001/rank-{r:05d}.context.json").read_text())[
            "node_local_dir"
        ]
        for r in range(4)
    }
    assert len(staged) == 2  # once a node, although the nodes are one host
    assert (run_dir / "run.json").owner() == on_slurm.cluster.config.user


@pytest.mark.slow
def test_killed_task_and_killed_rank_on_slurm_change_nothing_of_the_result(
    on_slurm: Driver, undisturbed: Path
) -> None:
    words = [*small(), *held(on_slurm), *ON_SLURM, *_train_on(2, 1, 1)]
    run_dir = on_slurm.submit(copy_configs(on_slurm), *words)
    kill_preprocess_and_train(on_slurm, run_dir)
    require_same(data_set(run_dir), data_set(undisturbed))
    assert weights(run_dir) == weights(undisturbed)


def test_submit_returns_at_once_and_leaves_no_process(on_slurm: Driver, cluster: Cluster) -> None:
    run_dir = on_slurm.submit_text(_hanging_spec())
    assert not [words for words in _processes_in(on_slurm.folder) if b"slurm_jobs" in words]
    wait_for((run_dir / "tasks/a/s00001.a0001/hangs-0").exists, "slice 1 at work")
    assert stage_of(on_slurm.status(run_dir), "a")["counts"]["running"] == 2
    on_slurm.run("cancel", str(run_dir), "--yes")
    status = on_slurm.wait(run_dir)
    assert set(words_of(status).values()) == {"cancelled"}
    wait_until(lambda: cluster.squeue() == [], "an empty queue")


def _processes_in(folder: Path) -> list[list[bytes]]:
    """Return the commands of the processes that a user has started in the folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (process / "cwd").readlink() == folder:
                commands.append((process / "cmdline").read_bytes().split(b"\0"))
    return commands


def _hanging_spec() -> str:
    return """
name: hangs
cluster: auto
stages:
  a:
    run: user_stages:work
    array: {num_slices: 4, max_running: 2}
    resources: {slurm: {partition: cpu}}
    config: {hang: [0, 1, 2, 3]}
  b: {run: "user_stages:work", after: a, resources: {slurm: {partition: cpu}}}
"""


@pytest.mark.slow
def test_stop_signal_on_slurm_saves_and_requeues(on_slurm: Driver) -> None:
    run_dir = on_slurm.submit_stages(
        """\
  a:
    run: user_stages:until_stopped
    resources: {timeout_min: 1, signal_lead_s: 30, slurm: {partition: cpu}}
    config: {until: 1400}  # more than Slurm lets it run at once
"""
    )
    assert on_slurm.wait(run_dir)["status"] == "completed"
    assert (run_dir / "data/a/count").read_text() == "1400"
    outcomes = sorted(path.name for path in (run_dir / "completions/a").iterdir())
    assert (outcomes[0][:13], outcomes[0][-13:]) == ("s00000.a0001.", ".stopped.json")
    entries = [json.loads(path.read_text()) for path in (run_dir / "ledger").glob("*.json")]
    assert sum(e["kind"] == "intent" for e in entries) == 1  # the same job, requeued


def test_a_refused_job_exits_with_3_and_the_reason_from_slurm(on_slurm: Driver) -> None:
    on_slurm.write(
        "spec.yaml",
        "name: refused\ncluster: auto\nstages:\n"
        '  a: {run: "user_stages:work", resources: {slurm: {nodelist: nosuch}}}\n',
    )
    done = on_slurm.run("submit", "spec.yaml", check=3)
    assert "invalid node name" in done.stderr.lower()
    assert "resume" in done.stderr


def test_what_comes_after_a_stage_that_is_not_needed_runs(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run_dir = on_slurm.submit_stages(
        '  t: {shell: "true"}\n'
        '  mend: {shell: "true", after: {t: afternotok}}\n'
        '  last: {shell: "true", after: {t: afterany, mend: afterany}}\n'
    )
    status = on_slurm.wait(run_dir)
    assert status["status"] == "completed"
    assert words_of(status) == {"t": "completed", "mend": "stranded", "last": "completed"}
    assert stage_of(status, "mend")["reason"] == "not needed: `t` completed"
    assert cluster.squeue() == []
    assert on_slurm.json("resume", str(run_dir))["jobs"] == []


def test_a_refused_job_that_slurm_recorded_does_not_count_as_submitted(
    on_slurm: Driver, cluster: Cluster
) -> None:
    """`Requested node configuration is not available` leaves a FAILED job in squeue and sacct."""
    on_slurm.write(
        "spec.yaml",
        """
name: refused
cluster: auto
stages:
  a: {shell: "true", resources: {slurm: {partition: cpu, constraint: v100}}}
  b: {shell: "true", after: a, resources: {slurm: {partition: cpu}}}
""",
    )
    done = on_slurm.run("submit", "spec.yaml", check=3)
    assert "Requested node configuration is not available" in done.stderr
    assert cluster.squeue() == []
    (run_dir,) = (on_slurm.folder / "runs").iterdir()
    again = on_slurm.run("resume", str(run_dir), check=3)
    assert "Requested node configuration is not available" in again.stderr
    kinds = [entry.kind for entry in read_ledger(run_dir / "ledger")]
    assert kinds == ["begin", "intent", "refused", "end"] * 2
    fixed = "stages.a.resources.slurm.constraint=cpu"
    on_slurm.run("resume", str(run_dir), "--set", fixed)
    assert on_slurm.wait(run_dir)["status"] == "completed"


@pytest.mark.slow
def test_status_without_a_controller_says_so_and_exits_3(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run_dir = on_slurm.submit_text(_hanging_spec())
    cluster.stop_daemon("slurmctld")
    cluster.stop_daemon("slurmdbd")
    done = on_slurm.run("status", str(run_dir), check=3)
    assert "could not be queried: squeue" in done.stdout
    assert "could not be queried: sacct" in done.stdout


def test_stage_runs_in_an_environment_of_its_own(on_slurm: Driver, cluster: Cluster) -> None:
    """The login node's environment lacks nothing of ours; the stage's has nothing of it."""
    bare = on_slurm.folder / "bare"
    cluster.run_as_user([cluster.python, "-m", "venv", "--without-pip", str(bare)])
    on_slurm.write(
        "own_python.py",
        "import importlib.util, json, sys\n"
        "def run(config, context):\n"
        "    found = {n: importlib.util.find_spec(n) is not None\n"
        "             for n in ('torch', 'yaml', 'submitit', 'pydantic', 'slurm_jobs')}\n"
        "    found['prefix'] = sys.prefix\n"
        "    (context.output_dir / 'found.json').write_text(json.dumps(found))\n",
    )
    run_dir = on_slurm.submit_stages(
        f"  a:\n    run: own_python:run\n"
        f"    python: {bare}/bin/python\n    resources: {{slurm: {{partition: cpu}}}}\n"
        f"  b:\n    run: own_python:run\n    after: a\n"
        f"    resources: {{slurm: {{partition: cpu}}}}\n"
    )
    assert on_slurm.wait(run_dir)["status"] == "completed"
    a, b = (json.loads((run_dir / f"data/{s}/found.json").read_text()) for s in "ab")
    assert a["prefix"] == str(bare)
    assert [a[n] for n in ("torch", "yaml", "submitit", "pydantic", "slurm_jobs")] == [
        *(False, False, False, False),
        True,  # from the run's snapshot
    ]
    assert b["prefix"] != a["prefix"]
    assert b["torch"]
    shutil.rmtree(bare)


def submit_with_an_sbatch_that_times_out(
    on_slurm: Driver, cluster: Cluster, *, blind: bool
) -> tuple[int, Path]:
    """An sbatch in the user's PATH that hands the job in and then says `Socket timed out`.

    `blind`: squeue and sacct fail as well, so that nobody can say what became of it.
    """
    scripts = {
        "sbatch": '/usr/bin/sbatch "$@" >/dev/null\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv' >&2\n"
        "exit 1\n"
    }
    if blind:
        scripts |= {"squeue": "exit 1\n", "sacct": "exit 1\n"}
    for name, text in scripts.items():
        on_slurm.write(f"bin/{name}", f"#!/bin/bash\n{text}").chmod(0o755)
    on_slurm.write(
        "spec.yaml",
        "name: open\ncluster: auto\nstages:\n"
        '  a: {run: "user_stages:work", resources: {slurm: {partition: cpu}}}\n',
    )
    path = f"{on_slurm.folder}/bin:{cluster.env()['PATH']}"
    done = cluster.run_as_user(
        [*on_slurm.command, "submit", "spec.yaml"],
        cwd=on_slurm.folder,
        env={"PATH": path},
        check=False,
    )
    assert ("To look it up" in done.stderr) is blind
    (run_dir,) = (on_slurm.folder / "runs").iterdir()
    return done.returncode, run_dir


def test_job_that_sbatch_took_and_then_timed_out_on_is_found_at_once(
    on_slurm: Driver, cluster: Cluster
) -> None:
    code, run_dir = submit_with_an_sbatch_that_times_out(on_slurm, cluster, blind=False)
    assert code == 0
    assert on_slurm.wait(run_dir)["status"] == "completed"
    assert on_slurm.json("resume", str(run_dir))["jobs"] == []
    assert (run_dir / "data/a/log-0").read_text().count("begins") == 1


def test_a_job_that_could_not_be_confirmed_is_found_by_resume(
    on_slurm: Driver, cluster: Cluster
) -> None:
    code, run_dir = submit_with_an_sbatch_that_times_out(on_slurm, cluster, blind=True)
    assert code == 3
    wait_for(lambda: list(run_dir.glob("completions/a/*.completed.json")), "the job's end")
    result = on_slurm.json("resume", str(run_dir))
    assert result["jobs"] == []
    assert "a" in result["adopted"]
    assert on_slurm.status(run_dir)["status"] == "completed"
    assert (run_dir / "data/a/log-0").read_text().count("begins") == 1


def test_a_report_on_a_run_that_goes_on_says_what_status_says(on_slurm: Driver) -> None:
    """Also in the seconds after a resume or a cancellation, in which sacct lags or runs ahead."""
    run_dir = on_slurm.submit_stages(
        """\
  count:
    shell: |
      [ $SLURM_JOBS_SLICE = 1 ] || exit 0
      [ -e mended ] || exit 1
      trap "" TERM; touch at-work; until [ -e released ]; do sleep 0.1; done
    array: {num_slices: 3}
    resources: {slurm: {partition: cpu}}
  total: {shell: "true", after: count, resources: {slurm: {partition: cpu}}}
"""
    )
    assert words_of(on_slurm.wait(run_dir)) == {"count": "failed", "total": "stranded"}
    on_slurm.write("mended", "")
    on_slurm.run("resume", str(run_dir))
    status, report = _words_of_one_moment(on_slurm, run_dir)
    assert report == status
    assert status["count"] in {"waiting", "running"}
    wait_for((on_slurm.folder / "at-work").exists, "the slice at work")
    on_slurm.run("cancel", str(run_dir), "--stage", "count", "--yes")
    status, report = _words_of_one_moment(on_slurm, run_dir)
    assert report == status
    on_slurm.write("released", "")


def _words_of_one_moment(on_slurm: Driver, run_dir: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What `status` and `report` call the stages, with nothing changed in between."""
    before = words_of(on_slurm.status(run_dir))
    while True:
        report = words_of(on_slurm.json("report", str(run_dir)))
        after = words_of(on_slurm.status(run_dir))
        if before == after:
            return before, report
        before = after
