"""A rank's process that goes on living after its function has returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.worker.late_exit import PATIENCE_VARIABLE
from tests.end_to_end.driver import Driver, kill, processes_naming, stage_of, wait_for


def stage(
    patience: float,
    *,
    num_ranks: int = 1,
    timeout_min: float = 10,
    lead_s: float = 60,
    **config: Any,
) -> dict[str, Any]:
    resources = {
        "tasks_per_node": num_ranks,
        "timeout_min": timeout_min,
        "signal_lead_s": lead_s,
    }
    setup = [f"export {PATIENCE_VARIABLE}={patience}"]
    run = "user_stages:outlives"
    return {"run": run, "setup": setup, "resources": resources, "config": config}


def submitted(driver: Driver, **stages: dict[str, Any]) -> Path:
    cluster = "local" if driver.cluster is None else "auto"
    spec = {"name": "late", "cluster": cluster, "stages": stages}
    driver.write("spec.yaml", json.dumps(spec))
    return driver.submit("spec.yaml")


def completion(run_dir: Path, name: str = "a") -> Any:
    (path,) = (run_dir / "completions" / name).iterdir()
    return json.loads(path.read_text())


KEPT = {
    "by_thread": (
        stage(0.5, kept_by="thread"),
        "thread `uploader` (target `outlives.<locals>.forever`, in ",
    ),
    "with_many_files": (stage(0.5, kept_by="thread", num_files=1100), "thread `uploader`"),
    "by_exit_handler": (stage(0.5, kept_by="exit handler"), "exit handler `forever`, "),
    "by_pool": (stage(0.5, kept_by="pool"), "child process `ForkProcess-1`"),
    "by_child": (stage(0.5, kept_by="child"), "child process `loader`"),
    "by_lock": (stage(0.5, kept_by="lock"), "Python could not end it itself"),
}
"""By name, the stage and what is said of it. A process with many open files ends itself, too."""
FAILED = {
    "raises": ({"how": "raise"}, "ValueError: a bad row"),
    "exits_with_3": ({"how": "exit", "code": 3}, "ended with exit code 3"),
    "exits": ({"how": "exit"}, "ended with exit code 0 before its function returned"),
    "leaves": ({"how": "os._exit"}, "ended with exit code 0 before its function returned"),
}


@pytest.fixture(scope="module")
def ended(local_of_file: Driver) -> Path:
    """A run whose processes go on living, or would, each in a way of its own."""
    stages = {name: kept for name, (kept, _) in KEPT.items()}
    stages["pipe"] = stage(100, kept_by="pipe")
    stages["crash"] = stage(100, kept_by="crash")
    for name, (how, _) in FAILED.items():
        stages[name] = stage(100, kept_by="thread", **how)
    run_dir = submitted(local_of_file, **stages)
    local_of_file.wait(run_dir)
    return run_dir


@pytest.mark.parametrize("name", KEPT)
def test_what_a_function_returned_counts_whatever_keeps_its_process(ended: Path, name: str) -> None:
    record = completion(ended, name)
    assert (record["outcome"], record["exit_code"]) == ("completed", 0)
    assert record["result"] == {"rank": 0}
    assert record["reason"].startswith("rank 0 on ")
    assert "its function had returned, and its process was ended" in record["reason"]
    assert KEPT[name][1] in record["reason"]
    assert processes_naming(str(ended / "tasks" / name)) == []


def test_a_child_that_holds_the_output_open_keeps_nothing(ended: Path) -> None:
    record = completion(ended, "pipe")
    assert (record["outcome"], record["reason"]) == ("completed", "")


def test_a_crash_after_the_return_is_noted_and_the_result_counts(ended: Path) -> None:
    record = completion(ended, "crash")
    assert record["outcome"] == "completed"
    assert "had returned before its process ended with SIGSEGV" in record["reason"]


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_with_a_thread_that_lives_has_its_own_reason(ended: Path, name: str) -> None:
    record = completion(ended, name)
    assert record["outcome"] == "failed"
    assert FAILED[name][1] in record["reason"]


def test_a_request_to_end_does_not_wait_for_the_patience(local: Driver) -> None:
    run_dir = submitted(local, a=stage(1000, kept_by="thread", timeout_min=0.2, lead_s=6))
    assert local.wait(run_dir, timeout_s=60)["status"] == "completed"
    assert "thread `uploader`" in completion(run_dir)["reason"]


def test_one_of_several_ranks_that_does_not_exit_is_named_everywhere(
    local: Driver,
) -> None:
    run_dir = submitted(local, a=stage(0.5, num_ranks=2, kept_by="thread", ranks=[1]))
    assert local.wait(run_dir)["status"] == "completed"
    note = completion(run_dir)["reason"]
    assert note.startswith("rank 1 on ")
    (part,) = stage_of(local.status(run_dir), "a")["slices"]
    assert (part["status"], part["reason"]) == ("completed", note)
    assert f"a completed, with a note: {note}" in local.run("status", str(run_dir)).stdout
    local.run("report", str(run_dir))
    reports = list(run_dir.glob("**/report.json"))
    assert note in reports[0].read_text()


def test_a_result_counts_also_where_its_keeper_is_killed(local: Driver) -> None:
    run_dir = submitted(local, a=stage(1000, kept_by="thread"))
    started = run_dir / "tasks/a/s00000.a0001/rank-00000.started.json"
    wait_for(started.with_name("rank-00000.returned.json").exists, "the return of the function")
    kill(json.loads(started.read_text())["keeper_pid"])
    assert local.wait(run_dir)["status"] == "completed"
    assert "its process and its keeper were killed" in completion(run_dir)["reason"]


@pytest.mark.slow
def test_a_time_limit_that_ends_a_complete_stage_is_named_before_a_resume(
    local: Driver,
) -> None:
    limited = stage(1000, kept_by="thread", timeout_min=0.2, lead_s=0)
    run_dir = submitted(local, a=limited, b={"shell": "true", "after": "a"})
    status = local.wait(run_dir, timeout_s=60)
    assert [stage_of(status, name)["status"] for name in "ab"] == ["completed", "stranded"]
    lines = local.run("status", str(run_dir), check=None).stdout.splitlines()
    assert (
        "b stranded: `a` is complete by its records, but the scheduler counts its job as TIMEOUT, "
        "as its process reached its time limit of 0.2 min before it ended: raise "
        "stages.a.resources.timeout_min"
    ) in lines
    assert local.json("resume", str(run_dir))["jobs"][0]["stage"] == "b"
    assert local.wait(run_dir)["status"] == "completed"
