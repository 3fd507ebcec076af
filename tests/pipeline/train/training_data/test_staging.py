"""Staging in on two nodes: two processes with a folder each stand in for them."""

import fcntl
import subprocess
import sys
import threading

import pytest

from pipeline.train.training_data.staging import cost_text
from tests.pipeline.train.conftest import rank_env, reserve_port

TIMEOUT_S = 3.0
"""Of collectives; a wait is only told when it is over, a second later."""
RANK = f"""
import logging, sys
from pathlib import Path
from pipeline.timing.span_log import SpanLog
from pipeline.train.ranks import patient_wait
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from pipeline.train.training_data.staging import stage_together
from slurm_jobs.formats.configs.training_parts import StagingConfig
from tests.contexts import make_context

rank, port, folder, dataset = int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:])
logging.basicConfig()
patient_wait.FIRST_WORD_S = {TIMEOUT_S} + 1.0
patient_wait._LAST_POLL_S = 0.1  # so that the ranks come to the collective behind the wait together
context = make_context(
    "train", folder, rank=rank, num_ranks=2, main_port=port,
    node_name=f"n{{rank}}", node_local_dir=folder / f"n{{rank}}",
)
print("ready", flush=True)
sys.stdin.readline()
ranks = join_ranks(context, device_type="cpu", timeout_min={TIMEOUT_S} / 60)
spans = SpanLog(context.timing_dir, rank)
staged = stage_together(dataset, context, StagingConfig(), ranks, spans)
assert staged.folder.is_relative_to(folder / f"n{{rank}}"), staged
staged.close()
leave_ranks()
"""


@pytest.fixture
def ranks(tmp_path, demo_data):
    """Both ranks, which wait for a line before they join each other."""
    with reserve_port() as reserved:
        tail = [str(reserved.getsockname()[1]), str(tmp_path), str(demo_data / "consolidate")]
        started = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), *tail],
                env=rank_env(),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in (0, 1)
        ]
        guard = threading.Timer(120, lambda: [process.kill() for process in started])
        guard.start()
        yield started
        guard.cancel()
        for process in started:
            process.kill()
            process.communicate()


def begin(ranks):
    for process in ranks:
        assert process.stdout.readline() == "ready\n"
    for process in ranks:
        process.stdin.write("go\n")
        process.stdin.flush()


def words_on_a_wait(process):
    """What the rank says once it has waited longer than collectives may; None if it ended."""
    return next((line for line in process.stderr if "waiting for" in line), None)


@pytest.mark.slow
def test_ranks_wait_for_a_node_whose_copy_exceeds_the_collective_timeout(tmp_path, ranks):
    (tmp_path / "n1").mkdir()
    with (tmp_path / "n1/stage_in.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other node's copy does not come to its end
        begin(ranks)
        words = words_on_a_wait(ranks[0])
    assert words is not None, ranks[0].wait()
    assert words.endswith("for n1 (rank 1)\n")
    assert [process.wait() for process in ranks] == [0, 0]


@pytest.mark.slow
def test_who_waits_for_staging_in_ends_when_the_rank_with_the_store_dies(tmp_path, ranks):
    (tmp_path / "n0").mkdir()
    with (tmp_path / "n0/stage_in.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin(ranks)
        assert words_on_a_wait(ranks[1]).endswith("for n0 (rank 0)\n")
        ranks[0].kill()
        assert ranks[1].wait() == 1


def test_the_cost_of_the_shared_file_system_is_reported_if_both_were_read():
    assert cost_text(2e9, 1.0, 4e9, 20.0) == (
        "samples read: 2.00 GB from the nodes' own disks in 1.0 s of loader threads, 4.00 GB from "
        "the shared file system in 20.0 s of loader threads; the shared file system cost 18.0 s "
        "more than the nodes' own disks would"
    )


@pytest.mark.parametrize(
    ("counts", "place"),
    [((2e9, 1.0, 0, 0.0), "the nodes' own disks"), ((0, 0.0, 2e9, 1.0), "the shared file system")],
)
def test_there_is_nothing_to_compare_where_one_was_read(counts, place):
    assert cost_text(*counts) == f"samples read: 2.00 GB from {place} in 1.0 s of loader threads"
    assert cost_text(0, 0.0, 0, 0.0) == "samples read: none"


def test_training_does_not_depend_on_where_its_samples_are_read(make_train_run, demo_data):
    sizes = [path.stat().st_size for path in (demo_data / "consolidate/shards").iterdir()]
    ways = {
        "off": {"mode": "off"},
        "whole": {"mode": "before"},
        "nothing fits": {"mode": "before", "max_gb": 1e-9},
        "arriving": {"mode": "beside", "max_mb_per_s": sum(sizes) / 1e6},
    }
    results, losses = {}, {}
    for name, staging in ways.items():
        run = make_train_run(staging=staging)
        results[name] = run.run_here()["staging"]
        losses[name] = run.losses()
    assert all(found == losses["off"] for found in losses.values())
    assert len(losses["off"]) == 6
    staged = {name: result["staged_bytes"] == sum(sizes) for name, result in results.items()}
    assert (staged["off"], staged["whole"], staged["nothing fits"]) == (False, True, False)
    read = {name: result["local_read_bytes"] > 0 for name, result in results.items()}
    assert (read["off"], read["whole"], read["nothing fits"]) == (False, True, False)
    assert results["whole"]["shared_read_bytes"] == 0
    assert results["off"]["reason"] == "staging.mode is off"
    assert "do not fit" in results["nothing fits"]["reason"]
