"""The end of the compute node's processes, each in a process of its own."""

import subprocess
import sys

import pytest

CODE = """
import atexit, os
from slurm_jobs.task import call, main, rank, supervisor

supervisor.supervise = rank.keep_rank = call.run_stage = lambda *_: 7
atexit.register(lambda: [os.kill(os.getpid(), number) for number in rank.FORWARDED])
main(WORDS)
"""


@pytest.mark.parametrize("words", [["task", "run", "token"], ["rank", "run"], ["call", "run"]])
def test_a_signal_that_comes_while_a_process_ends_does_not_change_how(words: list[str]) -> None:
    command = [sys.executable, "-c", CODE.replace("WORDS", str(words))]
    assert subprocess.run(command, check=False).returncode == 7
