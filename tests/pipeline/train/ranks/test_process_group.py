"""The process group over gloo."""

from pipeline.train.ranks.process_group import Ranks
from tests.pipeline.train.conftest import run_ranks

RANK = """
import sys
from pathlib import Path
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from tests.contexts import make_context

rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
context = make_context("train", folder, rank=rank, num_ranks=4, main_port=port)
ranks = join_ranks(context, device_type="cpu", timeout_min=1.0)
sums = [ranks.sums([float(rank)]) for _ in range(20)]
assert sums == [[6.0]] * 20, sums
leave_ranks()
"""


def test_process_that_ends_right_after_it_left_the_group_does_not_abort(tmp_path):
    assert run_ranks(["-c", RANK], 4, str(tmp_path)) == [0] * 4


def test_a_rank_that_is_alone_adds_up_without_a_group_to_ask():
    alone = Ranks(rank=0, num_ranks=1, host_group=None, store=None)
    assert alone.sums([1.5, 2.0]) == [1.5, 2.0]
    alone.barrier()
