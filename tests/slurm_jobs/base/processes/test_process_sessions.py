"""A child does not outlive the process that started it; who looks later knows a process again."""

import dataclasses
import os
import signal
import subprocess
import sys

from slurm_jobs.base.processes.process_sessions import (
    dies_with_parent,
    note_process,
    process_lives,
)
from tests.cluster.processes import is_readable

PARENT = """
import signal, subprocess, sys, time
from slurm_jobs.base.processes.process_sessions import dies_with_parent
child = subprocess.Popen(["sleep", "600"], preexec_fn=dies_with_parent(signal.SIGKILL))
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_is_killed_when_its_parent_is() -> None:
    # The child inherits the pipe, so it is closed only when both have ended.
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert int(parent.stdout.readline()) > 0
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert is_readable(parent.stdout.fileno(), 10.0)
    assert parent.stdout.read() == ""


def test_a_child_of_a_living_parent_is_left_alone() -> None:
    done = subprocess.run(
        ["echo", "alive"],
        preexec_fn=dies_with_parent(signal.SIGKILL),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"alive\n"


def test_a_zombie_process_does_not_count_as_alive() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        noted = note_process(child.pid)
        assert process_lives(noted)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_lives(noted) is False
        child.wait()
        assert process_lives(noted) is False


def test_a_process_with_the_same_number_but_another_start_is_another() -> None:
    own = note_process(os.getpid())
    assert process_lives(own)
    assert process_lives(dataclasses.replace(own, start_ticks=own.start_ticks - 1)) is False


def test_it_is_unknown_whether_a_process_of_another_machine_lives() -> None:
    own = note_process(os.getpid())
    assert process_lives(dataclasses.replace(own, pid_space="another machine")) is None
