"""Two attempts at one slice, of which the earlier is a process of the test's own."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_jobs.base.errors import STOPPED_EXIT_CODE, SUPERSEDED_EXIT_CODE
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.processes.process_sessions import note_process
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.formats.records.attempt_records import AttemptRecord, CompletionName, Outcome
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.ledger import append_entry, entry_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker import fence
from slurm_jobs.worker.fence import await_earlier_attempts
from slurm_jobs.worker.launch import RankProcesses, RanksEnd
from slurm_jobs.worker.stacks import REQUEST_SIGNAL
from slurm_jobs.worker.supervisor import SliceTask, _is_fenced_off, _supervise_slice
from tests.slurm_jobs.worker.orders import environment, order

HERE = socket.gethostname()


def claimed(
    paths: RunPaths,
    attempt: int,
    *,
    token: str = "old",
    host: str = HERE,
    pid: int = 1,
    restart: int = 0,
    start_ticks: int = 0,
) -> AttemptRecord:
    """An attempt at slice 3 of stage `s`, without a record of its end."""
    record = AttemptRecord(
        stage="s", slice_index=3, attempt=attempt, job_id="12_3", token=token, fingerprint="f",
        started_unix_s=0.0, node_names=("n1",), host=host, pid=pid, num_ranks=1,
        scheduler="slurm", restart=restart, start_ticks=start_ticks,
    )  # fmt: skip
    path = paths.attempt("s", 3, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record_to_json(record))
    return record


def ended(paths: RunPaths, record: AttemptRecord, outcome: Outcome) -> None:
    path = paths.completion("s", CompletionName(3, record.attempt, record.token, outcome))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def begun(paths: RunPaths, record: AttemptRecord) -> None:
    """Make the attempt one that has passed the fence."""
    paths.task_dir("s", 3, record.attempt).mkdir(parents=True)


def append_intent(paths: RunPaths, token: str) -> None:
    intent = {
        "stage": "s", "slices": "3", "is_array": True, "fingerprint": "f", "job_name": "n",
        "base_attempts": {},
    }  # fmt: skip
    append_entry(paths.ledger_dir, "intent", token, intent)


def slice_task(paths: RunPaths, *, restart: int = 0, retries: int = 0) -> SliceTask:
    """The slice as job `t` has it."""
    return SliceTask(
        order=dataclasses.replace(order(paths.run_dir, is_array=True), retries=retries),
        paths=paths,
        environment=dataclasses.replace(environment("n1"), restart=restart),
        slice_index=3,
        base_attempt=0,
    )


class FakeRanks:
    """Ranks that fail at once, of which each start is counted, while `meanwhile` happens."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.num_starts, self.stop_signalled, self._meanwhile = 0, False, meanwhile

    def run(self, _task_dir: Path, **_: object) -> RanksEnd:
        self.num_starts += 1
        self._meanwhile()
        return RanksEnd(outcome="failed", exit_code=1, reason="it broke")


def outcomes(paths: RunPaths) -> list[str]:
    """Recorded ends of job `t`, in the order of the attempts."""
    return [path.name.split(".")[3] for path in sorted(paths.completions_dir("s").glob("*.t.*"))]


@pytest.fixture
def ranks() -> FakeRanks:
    return FakeRanks()


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
    paths: RunPaths, outcome: Outcome
) -> None:
    ended(paths, claimed(paths, 1, host="elsewhere"), outcome)
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


@pytest.mark.parametrize("has_ended", [True, False])
def test_an_attempt_before_one_that_began_its_work_is_not_waited_for(
    paths: RunPaths, *, has_ended: bool
) -> None:
    claimed(paths, 1, host="elsewhere")
    second = claimed(paths, 2, pid=os.getpid())  # the host has been restarted since
    begun(paths, second)
    if has_ended:
        ended(paths, second, "failed")
    announced: list[str] = []
    assert await_earlier_attempts(paths, claimed(paths, 3), announced.append) is None
    assert announced == []


def test_an_attempt_that_never_began_is_not_the_last_to_be_waited_for(
    paths: RunPaths, supervisor: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "FENCE_PATIENCE_S", 0.1)
    monkeypatch.setattr(fence, "_POLL_S", 0.05)
    claimed(paths, 1, pid=supervisor.pid)
    ended(paths, claimed(paths, 2, token="second"), "failed")  # it waited in vain
    assert await_earlier_attempts(paths, claimed(paths, 3, token="new"), print) is not None


def test_an_earlier_attempt_is_never_taken_for_the_process_that_looks(paths: RunPaths) -> None:
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    claimed(paths, 1, pid=os.getpid(), token=words[0].decode())
    announced: list[str] = []
    assert await_earlier_attempts(paths, claimed(paths, 2), announced.append) is None
    assert announced == []


@pytest.mark.parametrize("is_same", [True, False])
def test_a_process_with_another_start_is_not_the_earlier_attempt(
    paths: RunPaths,
    supervisor: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_same: bool,
) -> None:
    monkeypatch.setattr(fence, "FENCE_PATIENCE_S", 0.1)
    monkeypatch.setattr(fence, "_POLL_S", 0.05)
    ticks = note_process(supervisor.pid).start_ticks
    claimed(paths, 1, pid=supervisor.pid, start_ticks=ticks if is_same else ticks + 1)
    problem = await_earlier_attempts(paths, claimed(paths, 2), print)
    assert (problem is not None) is is_same


def test_a_running_attempt_makes_way_for_its_own_job_and_for_a_newer_one(
    paths: RunPaths,
) -> None:
    append_intent(paths, "older")
    append_intent(paths, "t")
    task = slice_task(paths)
    record = claimed(paths, 1, token="t")
    assert not _is_fenced_off(task, record)
    claimed(paths, 2, token="older")  # finds itself superseded, and does no work
    assert not _is_fenced_off(task, record)
    claimed(paths, 3, token="t")  # requeued, while this start still runs
    assert _is_fenced_off(task, record)
    claimed(paths, 3, token="newer")
    assert not _is_fenced_off(task, record)
    append_intent(paths, "newer")
    assert _is_fenced_off(task, record)


@pytest.mark.parametrize(
    ("outcome", "has_begun", "expected"),
    [
        (None, False, True),
        ("failed", False, False),
        ("stopped", False, False),
        ("superseded", False, False),
        ("completed", True, True),  # whose files are not to be written again
    ],
)
def test_a_claim_that_ended_before_its_work_fences_off_nothing(
    paths: RunPaths, outcome: Outcome | None, *, has_begun: bool, expected: bool
) -> None:
    record, later = claimed(paths, 1, token="t"), claimed(paths, 2, token="t")
    if has_begun:
        begun(paths, later)
    if outcome is not None:
        ended(paths, later, outcome)
    assert _is_fenced_off(slice_task(paths), record) is expected


def test_an_old_start_that_tries_again_ends_and_leaves_the_new_start_alone(
    paths: RunPaths, ranks: FakeRanks
) -> None:
    append_intent(paths, "t")
    second = claimed(paths, 1, token="t", restart=1)
    begun(paths, second)
    old = slice_task(paths, restart=0, retries=1)
    assert _supervise_slice(old, cast("Any", ranks)) == SUPERSEDED_EXIT_CODE
    assert ranks.num_starts == 0
    assert outcomes(paths) == ["superseded"]
    assert not _is_fenced_off(slice_task(paths, restart=1), second)
    third = claimed(paths, 3, token="t", restart=0)  # and before it has recorded its end
    assert fence.is_of_older_start(paths, third)
    assert not _is_fenced_off(slice_task(paths, restart=1), second)


def test_a_failed_attempt_is_not_tried_again_after_a_newer_claim(
    paths: RunPaths,
) -> None:
    append_intent(paths, "t")
    ranks = FakeRanks(lambda: claimed(paths, 2, token="t", restart=1))
    task = slice_task(paths, retries=3)
    assert _supervise_slice(task, cast("Any", ranks)) == SUPERSEDED_EXIT_CODE
    assert ranks.num_starts == 1
    assert outcomes(paths) == ["failed"]
    assert not paths.attempt("s", 3, 3).exists()


def test_an_attempt_that_waits_makes_way_for_its_own_successor(
    paths: RunPaths, ranks: FakeRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "_POLL_S", 0.01)
    append_intent(paths, "t")
    claimed(paths, 1, host="elsewhere")
    successor: list[AttemptRecord] = []

    def sleep(_: float) -> None:
        successor.append(claimed(paths, 3, token="t", restart=1))

    monkeypatch.setattr(time, "sleep", sleep)
    assert _supervise_slice(slice_task(paths), cast("Any", ranks)) == SUPERSEDED_EXIT_CODE
    assert ranks.num_starts == 0
    assert len(successor) == 1
    assert outcomes(paths) == ["superseded"]


@pytest.fixture
def real_ranks(paths: RunPaths) -> Iterator[RankProcesses]:
    """Ranks of job `t`, which handle the signals of this process until the test's end."""
    numbers = (STOP_SIGNAL, signal.SIGTERM, REQUEST_SIGNAL)
    handlers = [signal.getsignal(number) for number in numbers]
    yield RankProcesses(order(paths.run_dir), environment("n1"))
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [STOP_SIGNAL, signal.SIGTERM])
def test_an_attempt_that_waits_stops_when_it_is_asked_to(
    paths: RunPaths, real_ranks: RankProcesses, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    append_intent(paths, "t")
    claimed(paths, 1, host="elsewhere")

    def sleep(_: float) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(time, "sleep", sleep)
    assert _supervise_slice(slice_task(paths), real_ranks) == STOPPED_EXIT_CODE
    assert outcomes(paths) == ["stopped"]
    assert not paths.task_dir("s", 3, 2).exists()


@pytest.mark.parametrize("damage", ["claim", "ledger", "file system"])
def test_a_look_that_fails_ends_no_healthy_attempt(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    append_intent(paths, "t")
    append_intent(paths, "newer")
    task, record = slice_task(paths), claimed(paths, 1, token="t")
    claimed(paths, 2, token="newer")
    assert _is_fenced_off(task, record)
    if damage == "claim":
        paths.attempt("s", 3, 2).write_text("[")
    elif damage == "ledger":
        entry_path(paths.ledger_dir, 2).write_text("[")
    else:

        def fails(_path: Path) -> bool:
            raise OSError(errno.ESTALE, "Stale file handle")

        monkeypatch.setattr(Path, "exists", fails)
    assert not _is_fenced_off(task, record)
