"""What the local scheduler says of tasks that wait, by who is there to start them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

import pytest

from slurm_jobs.base.processes.process_sessions import NotedProcess, note_process
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.local import RUNNER_START_S, LocalBook, LocalScheduler
from slurm_jobs.schedulers.local_state import NO_RUNNER
from slurm_jobs.schedulers.protocol import Question

VALUES = {"token": "t", "job_name": "n", "dependencies": {}, "max_running": None, "num_cpus": 1}


@pytest.fixture
def book(tmp_path: Path) -> LocalBook:
    """With one task that waits."""
    book = LocalBook(RunPaths(tmp_path).local_dir)
    book.add_job(VALUES, None)
    return book


def reason(book: LocalBook) -> str:
    scheduler = LocalScheduler(run_dir=book.folder.parent)
    return (
        scheduler.query(Question(jobs={"n": "1"}, since_unix_s=0.0)).tasks[JobKey("n", "1")].reason
    )


def ended() -> NotedProcess:
    with subprocess.Popen(["sleep", "600"]) as child:
        noted = note_process(child.pid)
        child.kill()
    return noted


def test_what_waits_is_left_while_its_submitter_lives_and_no_longer(book: LocalBook) -> None:
    book.write_starter(note_process(os.getpid()))
    assert reason(book) == ""
    book.write_starter(ended())
    assert reason(book) == NO_RUNNER


def test_who_submitted_and_lives_on_is_not_waited_for_for_ever(book: LocalBook) -> None:
    """A notebook, whose submit was interrupted before it started a runner."""
    book.write_starter(note_process(os.getpid()))
    long_ago_s = time.time() - RUNNER_START_S - 1
    os.utime(book.starter_file, (long_ago_s, long_ago_s))
    assert reason(book) == NO_RUNNER


def test_who_cannot_see_whether_a_runner_is_coming_waits_for_it_a_while(book: LocalBook) -> None:
    """So it is on another login node."""
    book.write_starter(dataclasses.replace(ended(), pid_space="another machine"))
    assert reason(book) == ""
    task = book.state("1")
    assert task is not None
    book.write_state(dataclasses.replace(task, submit_unix_s=time.time() - RUNNER_START_S - 1))
    assert reason(book) == NO_RUNNER
