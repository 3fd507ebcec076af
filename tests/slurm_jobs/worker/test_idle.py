"""A function that uses no processor time is named, with the line that it waits in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_jobs.formats.records.heartbeat import Heartbeat, heartbeat_path
from slurm_jobs.worker import idle
from slurm_jobs.worker.idle import MOST_NAMED, PATIENCE_VARIABLE, IdleWatch, idle_note
from tests.end_to_end.driver import wait_for

PATIENCE_S = 0.5
START = """
import multiprocessing, subprocess, sys, time
from pathlib import Path
from slurm_jobs.worker.stacks import register_stacks

fork = multiprocessing.get_context("fork")
register_stacks(Path(sys.argv[1]), 0)

def computes():
    while True:
        sum(range(1000))

def computes_in_child():
    while True:
        code = "import time; end = time.process_time() + 0.1\\nwhile time.process_time() < end: 0"
        subprocess.run([sys.executable, "-c", code], start_new_session=True)

def run(target, *arguments):
    child = fork.Process(target=target, args=arguments)
    child.start()
    print("ready", flush=True)
    child.join()

"""
WORKS_WHEN_TOLD = """
def run():
    print("ready", flush=True)
    for line in sys.stdin:
        end_s = time.process_time() + 0.3
        while time.process_time() < end_s:
            pass

run()
"""
JOIN = START.splitlines().index("    child.join()") + 1


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE_VARIABLE, str(PATIENCE_S))
    # Two ticks of this short patience: writing its stacks may cost a waiting process one.
    monkeypatch.setattr(idle, "BUSY_SHARE", 0.04)
    monkeypatch.setattr(idle, "DUMP_S", 1.0)


@contextmanager
def watched(tmp_path: Path, code: str) -> Iterator[tuple[IdleWatch, subprocess.Popen[str]]]:
    """Run `code` as the function of rank 0, and watch it from this process."""
    script = tmp_path / "own.py"
    script.write_text(START + code)
    command = [sys.executable, str(script), str(tmp_path)]
    pipe = subprocess.PIPE
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        text=True,
        env={"PYTHONPATH": root},
        start_new_session=True,
    ) as function:
        try:
            assert function.stdout is not None
            assert function.stdout.readline() == "ready\n"
            yield IdleWatch(tmp_path, 0, "n1", lambda: function.pid), function
        finally:
            os.killpg(function.pid, signal.SIGKILL)


def text_after_check(watch: IdleWatch, task_dir: Path) -> str | None:
    watch.check()
    note = idle_note(task_dir)
    return None if note is None else note.text


def require_unnamed(watch: IdleWatch, task_dir: Path) -> None:
    end_s = time.monotonic() + 8 * PATIENCE_S
    while time.monotonic() < end_s:
        assert text_after_check(watch, task_dir) is None
        time.sleep(0.02)


def require_named_once(watch: IdleWatch, task_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    end_s = time.monotonic() + 4 * PATIENCE_S
    while time.monotonic() < end_s:
        watch.check()
        time.sleep(0.02)
    assert "slurm-jobs" not in capfd.readouterr().err


def test_a_function_that_joins_a_sleeping_child_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with watched(tmp_path, "run(time.sleep, 600)") as (watch, _):
        text = wait_for(lambda: text_after_check(watch, tmp_path), "the place")
        start = "rank 0 on n1 has used almost no processor time for "
        assert text.startswith(start)
        assert (
            f" min: it was at run ({tmp_path}/own.py:{JOIN}), in join. Stacks: {tmp_path}" in text
        )
        assert f"slurm-jobs: {text}\n" in capfd.readouterr().err
        require_named_once(watch, tmp_path, capfd)


@pytest.mark.parametrize("target", ["computes", "computes_in_child"])
def test_a_function_whose_child_or_grandchildren_compute_is_not_named(
    tmp_path: Path, target: str
) -> None:
    with watched(tmp_path, f"run({target})") as (watch, _):
        require_unnamed(watch, tmp_path)


def test_a_function_that_works_again_is_named_again_a_few_times(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with watched(tmp_path, WORKS_WHEN_TOLD) as (watch, function):
        assert function.stdin is not None
        for number in range(2 * MOST_NAMED):
            if number < 2:  # on a busy machine, one that works may be named, too
                wait_for(lambda: text_after_check(watch, tmp_path), "the place")
            function.stdin.write("work\n")
            function.stdin.flush()
            wait_for(lambda: text_after_check(watch, tmp_path) is None, "the note to go")
            end_s = time.monotonic() + 2 * PATIENCE_S
            while time.monotonic() < end_s:
                watch.check()
                time.sleep(0.02)
    assert 2 <= capfd.readouterr().err.count("slurm-jobs: rank 0") <= MOST_NAMED


def test_work_before_the_place_is_written_costs_none_of_the_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    monkeypatch.setattr(idle, "DUMP_S", 600.0)
    monkeypatch.setattr(idle, "request_stacks", lambda *request: requests.append(request))
    with watched(tmp_path, WORKS_WHEN_TOLD) as (watch, function):
        assert function.stdin is not None
        for number in range(MOST_NAMED + 1):

            def is_requested(number: int = number) -> bool:
                watch.check()
                return len(requests) > number

            wait_for(is_requested, "the request for the stacks")
            function.stdin.write("work\n")
            function.stdin.flush()


def test_a_rank_with_a_heartbeat_is_not_named(tmp_path: Path) -> None:
    Heartbeat(heartbeat_path(tmp_path, 0), stall_s=600, collective_s=600)
    with watched(tmp_path, "run(time.sleep, 600)") as (watch, _):
        require_unnamed(watch, tmp_path)


@pytest.mark.parametrize("value", ["ten", "", "-1", "nan", "inf", "1e300"])
def test_a_patience_that_is_no_number_of_seconds_is_reported_and_ignored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    value: str,
) -> None:
    monkeypatch.setenv(PATIENCE_VARIABLE, value)
    IdleWatch(tmp_path, 0, "n1", os.getpid).check()
    assert capfd.readouterr().err == (
        f"slurm-jobs: {PATIENCE_VARIABLE} is `{value}`: give a number of seconds, such as 600. "
        "It is ignored\n"
    )
