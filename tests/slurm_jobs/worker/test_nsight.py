"""Ranks under Nsight Systems. No nsys here: a script stands in that starts the command as a child.

That the real one takes this command line, passes the exit code on and leaves signals alone is not
tested.
"""

import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_jobs.base.errors import STOPPED_EXIT_CODE
from slurm_jobs.base.files import read_json
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.launch import read_end
from slurm_jobs.worker.nsight import find_rank, nsight_command
from slurm_jobs.worker.rank import exit_path
from tests.contexts import make_context
from tests.slurm_jobs.worker.orders import start_keeper

NSYS = """#!/bin/sh
for word do shift; case $word in profile|--*) ;; *) set -- "$@" "$word";; esac; done
printf '%s ' "$@" > {said}
"$@"
code=$?
echo report > {report}
exit $code
"""
"""As nsys does: takes its own words away, runs the rest as a child, writes when that has ended."""
START = f"""
import os, signal, sys, time
if os.fork() == 0:
    time.sleep(60)  # has the same command, and is not the one that is meant
signal.signal({RELAY_SIGNAL}, lambda *_: sys.exit({STOPPED_EXIT_CODE}))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [{RELAY_SIGNAL}])
open(sys.argv[2] + ".ready", "w").close()
time.sleep(60)
"""
"""Stands in for `start.py call`: saves and stops when it is asked to."""


def test_the_report_is_named_after_the_rank_and_its_command_is_unchanged(
    tmp_path: Path,
) -> None:
    context = make_context("train", tmp_path, rank=3, timing_dir=tmp_path / "50%")
    assert nsight_command(["python", "-P", "start.py", "call", "x"], context) == [
        "nsys",
        "profile",
        f"--output={tmp_path}/50%%/rank-00003",
        "--trace=cuda,nvtx,osrt",
        "--force-overwrite=true",
        "--wait=primary",
        "--kill=none",
        "python",
        "-P",
        "start.py",
        "call",
        "x",
    ]


@pytest.fixture
def context(tmp_path: Path) -> TaskContext:
    (tmp_path / "start.py").write_text(START)
    return dataclasses.replace(make_context("train", tmp_path / "run"), node_local_dir=tmp_path)


def keeper(context: TaskContext, path: str) -> subprocess.Popen[bytes]:
    order = {"start_script": str(context.node_local_dir / "start.py"), "nsight": True}
    return start_keeper(context, order, PATH=path)


def test_a_node_without_nsys_refuses_before_the_stage_starts(
    context: TaskContext, tmp_path: Path
) -> None:
    process = keeper(context, str(tmp_path))
    end = read_end(context.task_dir, 1, [process.wait()])
    assert "`nsight: true`, and node n1 has no nsys on its PATH" in end.reason
    assert "module load nsight-systems" in end.reason
    assert not end.retryable
    assert not list(context.task_dir.glob("*.ready"))


def test_the_stop_signal_reaches_the_rank_and_nsys_still_writes_its_report(
    context: TaskContext, tmp_path: Path
) -> None:
    nsys, report, said = tmp_path / "bin/nsys", tmp_path / "report", tmp_path / "said"
    nsys.parent.mkdir()
    nsys.write_text(NSYS.format(said=said, report=report))
    nsys.chmod(0o755)
    process = keeper(context, f"{nsys.parent}:{os.environ['PATH']}")
    ready = context.task_dir / "rank-00000.context.json.ready"
    while not ready.exists():  # the kernel tells nobody that a file has come
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGUSR2)
    assert process.wait() == 0
    assert read_json(exit_path(context.task_dir, 0))["stopped"]
    assert report.read_text() == "report\n"
    words = said.read_text().split()
    assert words[words.index(str(tmp_path / "start.py")) :] == [
        str(tmp_path / "start.py"),
        "call",
        str(context.task_dir / "rank-00000.context.json"),
    ]


def test_a_rank_is_not_waited_for_when_nsys_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert find_rank(["python", "no-such-command"], process.pid) is None
