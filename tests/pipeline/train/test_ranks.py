"""The process group over gloo, waits without a timeout, and what a rank loads."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from pipeline.train import ranks as ranks_module
from pipeline.train.ranks import Ranks, arrive, tell_node, wait_for_all
from pipeline.train.trained_model import bare_model
from pipeline.train.trained_model.bare_model import build_together
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.records.heartbeat import stacks_path
from slurm_jobs.worker.hangs import describe_cause
from slurm_jobs.worker.stacks import read_stacks, request_stacks
from tests.pipeline.train.conftest import ROOT, rank_env, run_ranks

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


def test_process_that_ends_right_after_it_left_the_group_does_not_abort(tmp_path):
    assert run_ranks(["-c", RANK], 4, str(tmp_path)) == [0] * 4


def test_a_rank_that_is_alone_adds_up_without_a_group_to_ask():
    alone = Ranks(rank=0, num_ranks=1, host_group=None, store=None)
    assert alone.sums([1.5, 2.0]) == [1.5, 2.0]
    alone.barrier()


NODES = ("n1", "n1", "n2", "n2", "n3")


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(ranks_module, "FIRST_WORD_S", 0.0)
    store = dist.HashStore()
    for rank, node in enumerate(NODES):
        tell_node(store, rank, node)
    return store


def come(store, *ranks):
    for rank in ranks:
        arrive(store, "stage_in", rank=rank, num_ranks=len(NODES))


def wait_until_told(store, monkeypatch, *, came_later):
    """The words that rank 0 says while it waits; after each of them some more ranks come."""
    said, later = [], iter(came_later)

    def say(message, *values):
        said.append(message % values)
        come(store, *next(later))

    monkeypatch.setattr(ranks_module.log, "warning", say)
    wait_for_all(store, "stage_in", num_ranks=len(NODES), speaks=True)
    return said


def test_a_long_wait_names_the_ranks_that_are_missing_and_their_nodes(store, monkeypatch):
    come(store, 0)
    said = wait_until_told(store, monkeypatch, came_later=[(1, 3), (2, 4)])
    assert [words.rpartition(" for ")[2] for words in said] == [
        "n1 (rank 1), n2 (ranks 2-3), n3 (rank 4)",
        "n2 (rank 2), n3 (rank 4)",
    ]
    assert all(words.startswith("stage_in: waiting for ") for words in said)


def test_who_comes_last_does_not_wait(store, monkeypatch):
    come(store, 4, 3, 2, 1, 0)
    assert wait_until_told(store, monkeypatch, came_later=[]) == []


def test_one_meeting_says_nothing_of_another(store):
    come(store, 0, 1, 2, 3, 4)
    assert not store.check(["export/all"])


class TalkingRanks:
    """One of two ranks, which writes down how it talks to the other."""

    rank = 1
    num_ranks = 2

    def __init__(self):
        self.said = []

    def meet(self, what, *, speaks):
        self.said.append(f"meet {what}")

    def gather(self, value):
        self.said.append("gather")
        return []

    def from_main(self, value):
        self.said.append("from_main")
        return ["no such model", None]


def test_rank_0_may_read_for_longer_than_a_collective_waits(monkeypatch):
    """The ranks meet without a timeout before they exchange their problems."""
    monkeypatch.setattr(bare_model, "check_dtypes", lambda *_: None)
    monkeypatch.setattr(bare_model, "make_shell", lambda *_: None)
    monkeypatch.setattr(bare_model, "_prepare_layers", lambda *_: None)
    monkeypatch.setattr(bare_model, "check_can_be_shared", lambda _: None)
    ranks = TalkingRanks()
    with pytest.raises(StageConfigError, match="no such model"):
        build_together(SimpleNamespace(), None, ranks, None, loads_once=True)
    assert ranks.said == ["meet model_build", "gather", "from_main"]


def test_peft_and_bitsandbytes_are_loaded_only_when_needed():
    program = "import sys, pipeline.train.stage; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = {name.partition(".")[0] for name in loaded.split()}
    assert "torch" in packages
    assert not packages & {"peft", "bitsandbytes"}
