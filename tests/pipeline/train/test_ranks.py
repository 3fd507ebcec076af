"""The process group over gloo, with real processes."""

import os
import subprocess
import sys
import time

from pipeline.train.ranks import Ranks
from slurm_jobs.shared.heartbeat import stacks_path
from slurm_jobs.worker.hangs import describe_cause, read_stacks, request_stacks
from tests.pipeline.train.conftest import ROOT, run_ranks

RANK = """
import sys
from pathlib import Path
from pipeline.train.ranks import join_ranks, leave_ranks
from tests.contexts import make_context

rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
context = make_context("train", folder, rank=rank, num_ranks=4, main_port=port)
ranks = join_ranks(context, device_type="cpu", timeout_min=1.0)
sums = [ranks.sums([float(rank)]) for _ in range(20)]
assert sums == [[6.0]] * 20, sums
leave_ranks()
"""

PASSES_BACKWARD = """
import sys, time
from pathlib import Path
from pipeline.train.ranks import write_flights_on_request
from slurm_jobs.worker.hangs import register_stacks

def _engine_run_backward():  # as torch's, which calls C++
    print("ready", flush=True)
    time.sleep(600)

register_stacks(Path(sys.argv[1]), 0)
write_flights_on_request(Path(sys.argv[1]), 0, timeout_s=20)
exec(compile("_engine_run_backward()", "pipeline/train/loop.py", "exec"))
"""


def test_a_rank_in_a_backward_pass_waits_in_no_collective_whatever_its_other_threads_do(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PASSES_BACKWARD, str(tmp_path)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            request_stacks(tmp_path, 0, process.pid)
            end_s = time.monotonic() + 20
            while not (tmp_path / "gloo-flight-0").exists() and time.monotonic() < end_s:
                time.sleep(0.05)
        finally:
            process.kill()
    stacks = read_stacks(tmp_path, 0)
    assert stacks.main[0].function == "_engine_run_backward", stacks_path(tmp_path, 0).read_text()
    assert "follow" in [frame.function for thread in stacks.others for frame in thread]
    assert not stacks.is_in_collective
    assert (tmp_path / "gloo-flight-0").stat().st_size
    assert "at _engine_run_backward" in describe_cause({0: stacks})[1]


def test_process_that_ends_right_after_it_left_the_group_does_not_abort(tmp_path):
    assert run_ranks(["-c", RANK], 4, str(tmp_path)) == [0] * 4


def test_a_rank_that_is_alone_adds_up_without_a_group_to_ask():
    alone = Ranks(rank=0, num_ranks=1, host_group=None, store=None)
    assert alone.sums([1.5, 2.0]) == [1.5, 2.0]
    alone.barrier()
