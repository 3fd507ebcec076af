"""Requests for torch's flight records, answered by a thread."""

import subprocess
import sys
import time

from slurm_jobs.formats.records.heartbeat import stacks_path
from slurm_jobs.worker.hangs import describe_cause
from slurm_jobs.worker.stacks import read_stacks, request_stacks
from tests.pipeline.train.conftest import rank_env

PASSES_BACKWARD = """
import sys, time
from pathlib import Path
from pipeline.train.ranks.flight_recorder import write_flights_on_request
from slurm_jobs.worker.stacks import register_stacks

def _engine_run_backward():  # as torch's, which calls C++
    print("ready", flush=True)
    time.sleep(600)

register_stacks(Path(sys.argv[1]), 0)
write_flights_on_request(Path(sys.argv[1]), 0, timeout_s=20)
exec(compile("_engine_run_backward()", "pipeline/train/loop.py", "exec"))
"""


def test_a_rank_in_a_backward_pass_is_not_reported_to_wait_in_a_collective(tmp_path):
    command = [sys.executable, "-c", PASSES_BACKWARD, str(tmp_path)]
    with subprocess.Popen(command, env=rank_env(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            request_stacks(tmp_path, 0, process.pid)
            end_s = time.monotonic() + 120
            while not (tmp_path / "gloo-flight-0").exists() and time.monotonic() < end_s:
                time.sleep(0.05)
        finally:
            process.kill()
    stacks = read_stacks(tmp_path, 0)
    assert stacks.main[0].function == "_engine_run_backward", stacks_path(tmp_path, 0).read_text()
    assert "follow" in [frame.function for thread in stacks.others for frame in thread]
    assert stacks.collective is None
    assert (tmp_path / "gloo-flight-0").stat().st_size
    assert "at _engine_run_backward" in describe_cause({0: stacks})[1]
