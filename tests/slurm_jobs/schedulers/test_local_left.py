"""What a killed runner's tasks have left: real processes, in sessions as the runner starts them."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_jobs.base.processes.process_sessions import Session, left_of_session, note_session
from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.schedulers import local
from slurm_jobs.schedulers.local import LocalBook

VALUES = {"token": "t", "job_name": "n", "dependencies": {}, "max_running": None, "num_cpus": 1}
VARIABLE = "SLURM_JOBS_LOCAL_START=t-1-17.5"
TRAPS = "trap 'exit 0' TERM; sleep 1000 & echo $!; while true; do sleep 0.01; done"
IGNORES = "trap '' TERM; sleep 1000 & echo $!; while true; do sleep 0.01; done"


@pytest.fixture
def book(tmp_path: Path) -> LocalBook:
    """With one task that is written down as running."""
    book = LocalBook(tmp_path / "local")
    book.add_job(VALUES, None)
    book.write_state(TaskAccounting(job_id="1", state="RUNNING", source="local"))
    return book


@dataclasses.dataclass
class Task:
    """A shell that leads a session, and a child of its in the background."""

    leader: subprocess.Popen[str]
    child_pid: int
    session: Session

    def end_leader(self) -> None:
        """End the shell alone, and reap it."""
        self.leader.kill()
        self.leader.wait()


@pytest.fixture
def start() -> Iterator[object]:
    """Starts a task; what is left of it is ended afterwards."""
    pids = []

    def start_task(script: str, variable: str = VARIABLE) -> Task:
        name, _, value = variable.partition("=")
        leader = subprocess.Popen(
            ["bash", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, name: value},
            start_new_session=True,
        )
        assert leader.stdout is not None
        child_pid = int(leader.stdout.readline())
        pids.append(leader.pid)
        return Task(leader, child_pid, note_session(leader.pid, VARIABLE))

    yield start_task
    for pid in pids:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def test_a_task_that_is_still_ending_is_waited_for_and_not_killed(book, start, monkeypatch):
    task = start("trap 'exit 7' TERM; echo 0; while true; do sleep 0.01; done")
    book.write_session("1", task.session)
    looks = []

    def look_and_end(session: Session) -> list[int]:
        looks.append(session)
        if len(looks) == 5:  # as if the kernel's SIGTERM had taken effect only now
            task.leader.terminate()
            task.leader.wait()
        return left_of_session(session)

    monkeypatch.setattr(local, "left_of_session", look_and_end)
    local.end_left_tasks(book)
    assert task.leader.returncode == 7
    assert len(looks) >= 5


def test_what_does_not_end_in_time_is_killed_with_its_children(book, start, monkeypatch):
    monkeypatch.setattr(local, "KILL_WAIT_S", 0.0)
    task = start(IGNORES)
    book.write_session("1", task.session)
    local.end_left_tasks(book)
    assert task.leader.wait() == -signal.SIGKILL
    assert not living_process(task.child_pid)


def test_what_a_set_up_line_started_ends_though_its_shell_is_gone(book, start):
    task = start(TRAPS)
    task.end_leader()
    assert living_process(task.child_pid)
    book.write_session("1", task.session)
    local.end_left_tasks(book)
    assert not living_process(task.child_pid)


@pytest.mark.parametrize(
    "change", [{"start_ticks": 1}, {"pid_space": "another boot"}], ids=["recycled", "elsewhere"]
)
def test_a_process_that_only_has_the_same_number_is_left_alone(book, start, change):
    task = start(IGNORES)
    book.write_session("1", dataclasses.replace(task.session, **change))
    local.end_left_tasks(book)
    assert task.leader.poll() is None
    assert living_process(task.child_pid)


def test_a_session_without_its_leader_is_known_by_its_environment(book, start):
    task = start(TRAPS, variable="SLURM_JOBS_LOCAL_START=another")
    task.end_leader()
    book.write_session("1", task.session)
    local.end_left_tasks(book)
    assert living_process(task.child_pid)


def test_a_task_that_has_ended_is_not_looked_for(book, start):
    task = start(IGNORES)
    book.write_session("1", task.session)
    book.write_state(TaskAccounting(job_id="1", state="COMPLETED", source="local"))
    local.end_left_tasks(book)
    assert task.leader.poll() is None


def test_a_book_without_a_note_of_its_processes_holds_nothing_up(book):
    local.end_left_tasks(book)


def test_only_tasks_whose_first_process_lived_are_reported_as_ended(book, start, monkeypatch):
    monkeypatch.setattr(local, "KILL_WAIT_S", 0.0)
    task = start(IGNORES)
    book.write_session("1", task.session)
    assert local.end_left_tasks(book) == {"1"}
    task.leader.wait()
    assert local.end_left_tasks(book) == set()
