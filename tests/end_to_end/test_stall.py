"""A rank that hangs is named, and the attempt is tried again; the ranks are real, over gloo."""

from __future__ import annotations

import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.run_folder.paths import RunPaths
from tests.end_to_end.driver import Driver, wait_for

SPEC = """
name: stall
cluster: {cluster}
stages:
  a:
    run: "user_stages:trains"
    retries: {retries}
    setup: ["export SLURM_JOBS_EXIT_PATIENCE_S=0.5"]
    resources: {{tasks_per_node: {num_ranks}, timeout_min: 10, signal_lead_s: 60}}
    config: {config}
"""


def run(
    driver: Driver, num_ranks: int = 2, retries: int = 0, **config: Any
) -> tuple[Path, list[Any]]:
    """Run the stage to its end; its folder, and the record of each attempt."""
    cluster = "local" if driver.cluster is None else "auto"
    text = SPEC.format(
        cluster=cluster, num_ranks=num_ranks, retries=retries, config=json.dumps(config)
    )
    run_dir = driver.submit_text(text)
    driver.wait(run_dir)
    records = [json.loads(path.read_text()) for path in (run_dir / "completions/a").iterdir()]
    return run_dir, sorted(records, key=lambda record: record["attempt"])


def exit_of(run_dir: Path, rank: int) -> Any:
    """The record of how a rank of the first attempt ended."""
    path = run_dir / f"tasks/a/s00000.a0001/rank-{rank:05d}.exit.json"
    return json.loads(path.read_text())


def test_the_rank_that_hangs_in_its_loader_is_named_not_the_waiting_one(
    local: Driver,
) -> None:
    run_dir, (record,) = run(local, hangs="loader", stall_s=3)
    assert (record["outcome"], record["failed_rank"], record["retryable"]) == ("failed", 1, True)
    reason = record["reason"]
    assert reason.startswith("no progress for ")
    assert " was in the data loader, at read_sample (user_stages.py:" in reason
    assert "; rank 0 waits in a collective, all_reduce called at trains (user_stages.py:" in reason
    task_dir = run_dir / "tasks/a/s00000.a0001"
    for rank in range(2):
        assert "in trains" in (task_dir / f"rank-{rank:05d}.stacks.txt").read_text()
        flight = pickle.loads((task_dir / f"gloo-flight-{rank}").read_bytes())
        assert flight["entries"]


@pytest.mark.slow
def test_the_rank_in_a_collective_of_its_own_is_named(
    local: Driver,
) -> None:
    # The second attempt must not seem to hang where other processes hold the cores for seconds.
    _, (first, second) = run(local, 3, retries=1, hangs="collective", stall_s=10)
    assert (first["failed_rank"], second["outcome"]) == (1, "completed")
    assert "was in a collective, all_reduce called at lone_collective (" in first["reason"]
    assert "; ranks 0,2 wait in a collective, all_reduce called at trains" in first["reason"]


@pytest.mark.slow
def test_a_rank_that_hangs_after_a_request_to_stop_is_named_and_not_ended(local: Driver) -> None:
    text = SPEC.format(
        cluster="local",
        num_ranks=2,
        retries=0,
        config=json.dumps({"hangs": "loader", "stall_s": 3}),
    )
    run_dir = local.submit_text(text)
    task_dir = run_dir / "tasks/a/s00000.a0001"
    started = [wait_for_rank(task_dir, rank) for rank in range(2)]
    os.kill(parent_of(started[0]["keeper_pid"]), STOP_SIGNAL)
    log = wait_for(lambda: said_after_stop(run_dir), "the cause")
    assert "after the request to stop: rank 1 on local0 was in the data loader, at read_s" in log
    assert not (task_dir / "stalled.json").exists()
    for start in started:  # as Slurm does at the limit
        os.kill(start["pid"], signal.SIGKILL)
    local.wait(run_dir)
    (completion,) = (run_dir / "completions/a").iterdir()
    assert " before that: rank 1 on local0 was in" in json.loads(completion.read_text())["reason"]


def wait_for_rank(task_dir: Path, rank: int) -> Any:
    # Only then can it take a request.
    path = task_dir / f"rank-{rank:05d}.started.json"
    stacks = task_dir / f"rank-{rank:05d}.stacks.txt"
    wait_for(lambda: stacks.exists() and stacks.stat().st_size, "the rank")
    return json.loads(path.read_text())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def said_after_stop(run_dir: Path) -> str:
    lines = [
        line
        for log in run_dir.glob("logs/**/*")
        if log.is_file()
        for line in log.read_text(errors="replace").splitlines()
    ]
    return next((line for line in lines if "after the request to stop" in line), "")


@pytest.mark.slow
def test_a_thread_that_keeps_a_process_with_a_group_alive_is_named(
    local: Driver,
) -> None:
    run_dir, (record,) = run(local, hangs="thread", stall_s=60)
    assert record["outcome"] == "completed"
    note = exit_of(run_dir, 1)["note"]
    assert "its function had returned, and its process was ended" in note
    assert "thread `uploader`" in note


@pytest.mark.slow
def test_collectives_that_time_out_are_blamed_on_the_missing_rank(
    local: Driver,
) -> None:
    _, (record,) = run(local, hangs="loader", stall_s=60, collective_s=15)
    assert record["outcome"] == "failed"
    assert record["failed_rank"] == 0
    assert "s before that: rank 1 on local0 was in the data loader, at " in record["reason"]


@pytest.mark.slow
def test_a_rank_that_fails_ends_at_once_and_is_the_one_that_is_blamed(local: Driver) -> None:
    run_dir, (record,) = run(local, hangs="raise", stall_s=60)
    assert record["failed_rank"] == 1
    assert "ValueError: a bad row" in record["reason"]
    assert exit_of(run_dir, 1)["note"] == ""  # no exit handler was waited for


NVIDIA_SMI = """#!/bin/sh
echo $PPID > {folder}/noting
while [ ! -e {folder}/answers ]; do sleep 0.05; done
echo "0, NVIDIA H100 80GB HBM3, GPU-1, 81559, 580.65.06"
"""
WITH_A_GPU = """
name: noted
cluster: local
stages:
  a:
    run: "user_stages:until_released"
    setup: ["export PATH={folder}:$PATH"]
    resources: {{timeout_min: 10, signal_lead_s: 60}}
    config: {{fails: []}}
"""


def test_a_request_for_stacks_does_not_end_the_record_of_node_facts(local: Driver) -> None:
    folder = local.folder / "bin"
    local.write("bin/nvidia-smi", NVIDIA_SMI.format(folder=folder)).chmod(0o700)
    run_dir = local.submit_text(WITH_A_GPU.format(folder=folder))
    noting = wait_for(
        lambda: (folder / "noting").exists() and (folder / "noting").read_text(), "it"
    )
    os.kill(int(noting), signal.SIGUSR1)  # as Slurm does to all processes of a step
    (folder / "answers").touch()
    facts = RunPaths(run_dir).node_facts("a", 0, 1, 0)

    def gpus() -> Any:
        return facts.exists() and json.loads(facts.read_text())["gpus"]

    assert [gpu["uuid"] for gpu in wait_for(gpus, "the facts")] == ["GPU-1"]
    (run_dir / "data/a/released").touch()
    assert local.wait(run_dir)["status"] == "completed"


RELEASED = """
name: released
cluster: local
stages:
  a:
    run: "user_stages:until_released"
    resources: {timeout_min: 10, signal_lead_s: 60}
    config: {fails: []}
"""


def test_a_request_to_the_supervisor_has_its_rank_write_its_stacks(local: Driver) -> None:
    run_dir = local.submit_text(RELEASED)
    task_dir = run_dir / "tasks/a/s00000.a0001"
    start = wait_for_rank(task_dir, 0)
    os.kill(parent_of(start["keeper_pid"]), signal.SIGUSR1)  # as `scancel --batch` does
    stacks = task_dir / "rank-00000.stacks.txt"
    wait_for(lambda: "in until_released" in stacks.read_text(), "the stacks")
    (run_dir / "data/a/released").touch()
    assert local.wait(run_dir)["status"] == "completed"


TRAPS = """
name: traps
cluster: local
stages:
  a: {shell: "trap 'exit 0' USR1; kill -USR1 $$; exit 3"}
"""


def test_a_shell_command_receives_the_signal_of_requests_unchanged(local: Driver) -> None:
    local.write("spec.yaml", TRAPS)
    assert local.wait(local.submit("spec.yaml"))["status"] == "completed"
