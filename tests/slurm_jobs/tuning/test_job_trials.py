"""Trials as real processes of two ranks; what a part does is the test's own."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.base.processes import stop_requests
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.tuning import job_trials
from tests.contexts import make_context

HERE = Path(__file__).parent
STUB = HERE / "part_stub.py"
ROOT = HERE.parents[2]


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskContext:
    """Of rank 0; rank 1 follows in a process of its own."""
    monkeypatch.setattr(job_trials, "_start_script", lambda: STUB)
    monkeypatch.setattr(job_trials, "_OTHERS_PATIENCE_S", 0.5)
    return make_context("train", tmp_path, num_ranks=2, num_local_ranks=2)


@pytest.fixture
def follower(context: TaskContext, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    other = dataclasses.replace(context, rank=1, local_rank=1)
    file = tmp_path / "rank-1.json"
    file.write_text(json.dumps(record_to_json(other)))
    command = [sys.executable, str(HERE / "follower.py"), str(file), str(STUB)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    yield process
    process.kill()
    process.wait()


def lead(context: TaskContext, number: int, limit_s: float = 60.0, **does: str) -> str:
    config = {name.removeprefix("rank"): what for name, what in does.items()}
    return job_trials.run_trial(context, number, config, port=1234, limit_s=limit_s)


def said(context: TaskContext, number: int, rank: int) -> Path:
    return context.task_dir / "trials" / f"{number:04d}" / f"rank-{rank:05d}" / "does"


def test_every_rank_runs_its_part_of_every_trial_and_leaves_when_dismissed(
    context: TaskContext, follower: subprocess.Popen[bytes]
) -> None:
    for number in (1, 2):
        assert lead(context, number) == ""
        assert [said(context, number, rank).read_text() for rank in (0, 1)] == ["ends 1234"] * 2
    job_trials.end_trials(context)
    assert follower.wait(30) == 0


def test_a_part_that_fails_ends_the_others_and_the_next_trial_runs(
    context: TaskContext, follower: subprocess.Popen[bytes]
) -> None:
    assert lead(context, 1, rank0="hangs", rank1="fails") == (
        "rank 1: OutOfMemoryError: no room for 3 GB"
    )
    assert lead(context, 2) == ""


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("7", r"it ended with exit code 7; its log: .*0001/rank-00000/log"),
        ("-9", "it was killed by signal 9; the node may have run out of memory"),
        ("-15", "it was killed by signal 15"),
    ],
)
def test_a_part_that_ends_without_an_error_is_described_by_its_exit(
    context: TaskContext, follower: subprocess.Popen[bytes], does: str, said: str
) -> None:
    assert re.fullmatch(f"rank 0: {said}", lead(context, 1, rank0=does))


def test_a_long_error_is_cut(context: TaskContext, follower: subprocess.Popen[bytes]) -> None:
    failure = lead(context, 1, rank0="fails at length")
    assert failure.startswith("rank 0: OutOfMemoryError: no room for 3 GB of weights")
    assert failure.endswith("...")
    assert len(failure) < 320


def test_a_trial_that_takes_too_long_is_ended(
    context: TaskContext, follower: subprocess.Popen[bytes]
) -> None:
    assert lead(context, 1, limit_s=1.0, rank0="hangs", rank1="hangs") == "it took more than 1 s"


def test_a_stop_request_ends_all_parts(
    context: TaskContext, follower: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def is_stop_due() -> bool:
        if said(context, 1, 0).exists() and not asked:
            asked.append(time.monotonic())
        return bool(asked)

    monkeypatch.setattr(job_trials, "stop_requested", is_stop_due)
    assert stop_requests.stop_requested() is False
    with pytest.raises(StageStoppedError):
        lead(context, 1, rank0="hangs", rank1="hangs")
    assert not _lives(lambda line: f"{context.task_dir}/trials/0001/rank-00000" in line)


def test_a_part_does_not_outlive_its_rank(
    context: TaskContext, follower: subprocess.Popen[bytes]
) -> None:
    def is_part(line: str) -> bool:
        return "part_stub.py" in line and f"{context.task_dir}/trials/0001/rank-00001" in line

    folder = context.task_dir / "trials"
    folder.mkdir()
    order = {"config": {"1": "hangs"}, "port": 1, "limit_s": 60.0}
    (folder / "0001.order.json").write_text(json.dumps(order))
    deadline = time.monotonic() + 120
    while not said(context, 1, 1).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert _lives(is_part)
    follower.kill()
    follower.wait()
    while _lives(is_part):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(is_meant: Callable[[str], bool]) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if is_meant(line):
            return True
    return False
