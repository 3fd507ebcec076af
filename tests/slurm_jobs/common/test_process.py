"""A child does not outlive the process that started it."""

import select
import signal
import subprocess
import sys

from slurm_jobs.common.process import dies_with_parent

PARENT = """
import signal, subprocess, sys, time
from slurm_jobs.common.process import dies_with_parent
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
    readable, _, _ = select.select([parent.stdout], [], [], 10)
    assert readable
    assert parent.stdout.read() == ""


def test_a_child_of_a_living_parent_is_left_alone() -> None:
    done = subprocess.run(
        ["echo", "alive"],
        preexec_fn=dies_with_parent(signal.SIGKILL),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"alive\n"
