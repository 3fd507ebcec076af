"""The line above a log that says how its attempt ended."""

from __future__ import annotations

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.tried_again import began, make, slurm, stopped_twice
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["slurm", "stopped_twice"]

PREEMPTED = (
    "attempt 1 of 3 on v1, preempted: Slurm gave its nodes to a job of higher priority; it "
    "stopped in time"
)


def log(paths: RunPaths, attempt: int, rank: int, text: str) -> None:
    path = paths.rank_log("train", 0, attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_above_each_of_several_logs_is_how_its_attempt_ended(
    command: Command, stopped_twice: RunPaths
) -> None:
    for rank in (0, 1):
        log(stopped_twice, 1, rank, f"rank {rank}\n")
    done = command("logs", stopped_twice.run_dir, "train", "--attempt", "1", code=0)
    assert done.out.splitlines() == [
        f"==> s00000.a0001.rank-00000.log <== {PREEMPTED}",
        "rank 0",
        f"==> s00000.a0001.rank-00001.log <== {PREEMPTED}",
        "rank 1",
    ]


def test_a_single_log_is_printed_alone_and_its_end_goes_to_standard_error(
    command: Command, stopped_twice: RunPaths
) -> None:
    log(stopped_twice, 1, 0, "step 10\n")
    words = ("train", "--attempt", "1", "--rank", "0")
    done = command("logs", stopped_twice.run_dir, *words, code=0)
    assert (done.out, done.err) == ("step 10\n", f"{PREEMPTED}\n")


def test_a_later_attempt_says_how_to_see_the_one_before(
    command: Command, stopped_twice: RunPaths
) -> None:
    log(stopped_twice, 2, 0, "step 20\n")
    words = ("train", "--attempt", "2", "--rank", "0")
    done = command("logs", stopped_twice.run_dir, *words, code=0)
    assert done.err.startswith("attempt 2 of 3 (--attempt 1 shows the one before) on ")


def test_a_first_attempt_gets_no_head_and_accounting_is_not_queried(
    command: Command, slurm: FakeSlurm, tmp_path
) -> None:
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    log(paths, 1, 0, "step 10\n")
    done = command("logs", paths.run_dir, "train", "--rank", "0", code=0)
    assert (done.out, done.err) == ("step 10\n", "")
    assert len(slurm.calls("sacct")) == 1  # of the status
