"""A rank's process that goes on living after its function has returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.worker.late_exit import PATIENCE_VARIABLE
from tests.end_to_end.driver import Driver, kill, processes_naming, stage_of, wait_for

SPEC = """
name: late
cluster: {cluster}
stages:
  a:
    run: "user_stages:outlives"
    setup: ["export {variable}={patience}"]
    resources: {{tasks_per_node: {num_ranks}, timeout_min: {timeout_min}, signal_lead_s: {lead_s}}}
    config: {config}
"""


def submitted(driver: Driver, patience: float, num_ranks: int = 1, **config: Any) -> Path:
    text = SPEC.format(
        cluster="local" if driver.cluster is None else "auto",
        variable=PATIENCE_VARIABLE,
        patience=patience,
        num_ranks=num_ranks,
        timeout_min=config.pop("timeout_min", 10),
        lead_s=config.pop("lead_s", 60),
        config=json.dumps(config),
    )
    driver.write("spec.yaml", text)
    return driver.submit("spec.yaml")


def completion(run_dir: Path) -> Any:
    (path,) = (run_dir / "completions/a").iterdir()
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("kept_by", "words"),
    [
        ("thread", "thread `uploader` (target `outlives.<locals>.forever`, in "),
        ("exit handler", "exit handler `forever`, "),
        ("pool", "child process `ForkProcess-1`"),
        ("child", "child process `loader`"),
        ("lock", "Python could not end it itself"),
    ],
)
def test_what_a_function_returned_counts_whatever_keeps_its_process(
    local: Driver, kept_by: str, words: str
) -> None:
    run_dir = submitted(local, 0.5, kept_by=kept_by)
    assert local.wait(run_dir)["status"] == "completed"
    record = completion(run_dir)
    assert (record["exit_code"], record["result"]) == (0, {"rank": 0})
    assert record["reason"].startswith("rank 0 on ")
    assert "its function had returned, and its process was ended" in record["reason"]
    assert words in record["reason"]
    assert processes_naming(str(run_dir / "tasks")) == []


def test_a_process_with_many_open_files_is_ended_by_its_own_thread(local: Driver) -> None:
    run_dir = submitted(local, 0.5, kept_by="thread", num_files=1100)
    assert local.wait(run_dir)["status"] == "completed"
    assert "thread `uploader`" in completion(run_dir)["reason"]


def test_a_child_that_holds_the_output_open_keeps_nothing(local: Driver) -> None:
    run_dir = submitted(local, 100, kept_by="pipe")
    assert local.wait(run_dir, timeout_s=60)["status"] == "completed"
    assert completion(run_dir)["reason"] == ""


def test_a_crash_after_the_return_is_noted_and_the_result_counts(local: Driver) -> None:
    run_dir = submitted(local, 100, kept_by="crash")
    assert local.wait(run_dir)["status"] == "completed"
    assert "had returned before its process ended with SIGSEGV" in completion(run_dir)["reason"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"how": "raise"}, "ValueError: a bad row"),
        pytest.param({"how": "exit", "code": 3}, "ended with exit code 3", marks=pytest.mark.slow),
        pytest.param(
            {"how": "exit"},
            "ended with exit code 0 before its function returned",
            marks=pytest.mark.slow,
        ),
        ({"how": "os._exit"}, "ended with exit code 0 before its function returned"),
    ],
)
def test_a_failure_with_a_thread_that_lives_has_its_own_reason(
    local: Driver, how: dict[str, Any], reason: str
) -> None:
    run_dir = submitted(local, 100, kept_by="thread", **how)
    (part,) = stage_of(local.wait(run_dir, timeout_s=60), "a")["slices"]
    assert part["status"] == "failed"
    assert reason in part["reason"]


def test_a_request_to_end_does_not_wait_for_the_patience(local: Driver) -> None:
    run_dir = submitted(local, 1000, kept_by="thread", timeout_min=0.2, lead_s=6)
    assert local.wait(run_dir, timeout_s=60)["status"] == "completed"
    assert "thread `uploader`" in completion(run_dir)["reason"]


def test_one_of_several_ranks_that_does_not_exit_is_named_everywhere(
    local: Driver,
) -> None:
    run_dir = submitted(local, 0.5, num_ranks=2, kept_by="thread", ranks=[1])
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
    run_dir = submitted(local, 1000, kept_by="thread")
    started = run_dir / "tasks/a/s00000.a0001/rank-00000.started.json"
    wait_for(started.with_name("rank-00000.returned.json").exists, "the return of the function")
    kill(json.loads(started.read_text())["keeper_pid"])
    assert local.wait(run_dir)["status"] == "completed"
    assert "its process and its keeper were killed" in completion(run_dir)["reason"]


@pytest.mark.slow
def test_a_time_limit_that_ends_a_complete_stage_is_named_before_a_resume(
    local: Driver,
) -> None:
    text = SPEC + "  b: {{shell: 'true', after: a}}\n"
    values = {"cluster": "local", "variable": PATIENCE_VARIABLE, "patience": 1000, "num_ranks": 1}
    limits = {"timeout_min": 0.2, "lead_s": 0}
    local.write("spec.yaml", text.format(config='{"kept_by": "thread"}', **values, **limits))
    run_dir = local.submit("spec.yaml")
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
