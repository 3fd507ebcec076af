"""Two attempts at one slice, of which the earlier is a process of the test's own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.shared.records import AttemptRecord, CompletionName, record_to_json
from slurm_jobs.worker import fence
from slurm_jobs.worker.fence import await_earlier_attempts, has_successor
from slurm_jobs.worker.supervisor import SliceTask, _is_fenced_off
from tests.slurm_jobs.worker.orders import environment, order

HERE = socket.gethostname()


def claimed(
    paths: RunPaths, attempt: int, *, token: str = "old", host: str = HERE, pid: int = 1
) -> AttemptRecord:
    """An attempt at slice 3 of stage `s`, without a record of its end."""
    record = AttemptRecord(
        stage="s", slice_index=3, attempt=attempt, job_id="12_3", token=token, fingerprint="f",
        started_unix_s=0.0, node_names=("n1",), host=host, pid=pid, num_ranks=1,
        scheduler="slurm", restart=0,
    )  # fmt: skip
    path = paths.attempt("s", 3, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record_to_json(record))
    return record


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line has the token `old`, as a supervisor's has."""
    command = [sys.executable, "-c", "input()", "task", "/run", "old"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_later_attempt_begins_when_the_process_of_the_earlier_has_ended(
    paths: RunPaths, supervisor: subprocess.Popen[bytes]
) -> None:
    claimed(paths, 1, pid=supervisor.pid)
    later = claimed(paths, 2, token="new")
    announced: list[str] = []

    def say(text: str) -> None:
        announced.append(text)
        supervisor.kill()

    assert await_earlier_attempts(paths, later, say) is None
    assert supervisor.wait() != 0
    assert "waiting for attempt 1 (job 12_3" in announced[0]


def test_a_later_attempt_fails_while_the_earlier_cannot_be_ended(
    paths: RunPaths, supervisor: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "FENCE_PATIENCE_S", 0.2)
    monkeypatch.setattr(fence, "_POLL_S", 0.05)
    claimed(paths, 1, pid=supervisor.pid)
    problem = await_earlier_attempts(paths, claimed(paths, 2, token="new"), print)
    assert problem is not None
    assert f"process {supervisor.pid} on {HERE}" in problem


@pytest.mark.parametrize("is_reused", [True, False])
def test_an_earlier_attempt_whose_process_is_gone_is_not_waited_for(
    paths: RunPaths, *, is_reused: bool
) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        if not is_reused:  # else another process has the id by now
            process.kill()
            process.wait()
        claimed(paths, 1, pid=process.pid)
        announced: list[str] = []
        assert await_earlier_attempts(paths, claimed(paths, 2), announced.append) is None
        assert announced == []
        process.kill()


@pytest.mark.parametrize("outcome", ["completed", "failed", "stopped", "superseded"])
def test_an_earlier_attempt_that_recorded_its_end_is_not_waited_for(
    paths: RunPaths, outcome: str
) -> None:
    earlier = claimed(paths, 1, host="elsewhere")
    name = CompletionName(3, 1, earlier.token, outcome)  # type: ignore[arg-type]
    paths.completion("s", name).parent.mkdir(parents=True)
    paths.completion("s", name).write_text("{}")
    announced: list[str] = []
    assert await_earlier_attempts(paths, claimed(paths, 2), announced.append) is None
    assert announced == []


def test_an_attempt_on_another_host_is_given_the_time_to_see_the_claim(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "FENCE_PATIENCE_S", 0.3)
    monkeypatch.setattr(fence, "_POLL_S", 0.05)
    claimed(paths, 1, host="elsewhere")
    announced: list[str] = []
    assert await_earlier_attempts(paths, claimed(paths, 2), announced.append) is None
    assert len(announced) == 1


def test_a_running_attempt_makes_way_for_its_own_job_and_for_a_newer_one(
    paths: RunPaths,
) -> None:
    intent = {
        "stage": "s", "slices": "3", "is_array": True, "fingerprint": "f", "job_name": "n",
        "base_attempts": {},
    }  # fmt: skip
    append_entry(paths.ledger_dir, "intent", "older", intent)
    append_entry(paths.ledger_dir, "intent", "t", intent)
    task = SliceTask(
        order=order(paths.run_dir, is_array=True),
        paths=paths,
        environment=environment("n1"),
        slice_index=3,
        base_attempt=0,
    )
    record = claimed(paths, 1, token="t")
    assert not has_successor(paths, record)
    assert not _is_fenced_off(task, record)
    claimed(paths, 2, token="older")  # finds itself superseded, and does no work
    assert not _is_fenced_off(task, record)
    claimed(paths, 2, token="t")  # requeued, while this start still runs
    assert _is_fenced_off(task, record)
    claimed(paths, 2, token="newer")
    append_entry(paths.ledger_dir, "intent", "newer", intent)
    assert _is_fenced_off(task, record)
