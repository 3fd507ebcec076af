"""When a task of a killed runner was last at work; the times of its files are set by hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import CompletionName, TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.formats.timings.step_records import STEP_FIELDS, pack_step, steps_header
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.schedulers import local
from slurm_jobs.schedulers.local import LocalBook, LocalScheduler, last_sign_unix_s
from slurm_jobs.schedulers.protocol import Question
from tests.slurm_jobs.worker.orders import order

VALUES = {"token": "t", "job_name": "n", "dependencies": {}, "max_running": None, "num_cpus": 1}
START_UNIX_S = time.time() - 3600.0
TASK = TaskAccounting(job_id="1", state="RUNNING", source="local", start_unix_s=START_UNIX_S)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """Of a run whose only task is written down as running, an hour after it began."""
    paths = RunPaths(tmp_path)
    book = LocalBook(paths.local_dir)
    book.add_job(VALUES, None)
    book.write_state(TASK)
    paths.job_dir("t").mkdir(parents=True)
    write_json_atomic(paths.job_json("t"), order_to_json(order(tmp_path, scheduler="local")))
    wrote(paths.job_log("s", "1"), 1.0)
    wrote(paths.attempt("s", 0, 1), 2.0)
    return paths


def wrote(path: Path, after_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (START_UNIX_S + after_s, START_UNIX_S + after_s))


def last_sign_s(paths: RunPaths) -> float:
    records = read_stage_records(paths, "s")
    return last_sign_unix_s(paths, order(), records, TASK) - START_UNIX_S


def test_the_last_step_span_or_heartbeat_is_the_last_sign_of_a_task(paths: RunPaths) -> None:
    timing_dir = paths.timing_dir("s", 0, 1)
    for name, after_s in (
        ("rank-00000.steps", 30.0),
        ("rank-00000.spans.jsonl", 29.0),
        ("node-00000.system", 31.0),
    ):
        wrote(timing_dir / name, after_s)
    wrote(paths.task_dir("s", 0, 1) / "progress.json", 28.0)
    assert last_sign_s(paths) == pytest.approx(31.0, abs=1e-3)


def test_a_log_that_a_rank_wrote_last_is_the_last_sign_of_a_task(paths: RunPaths) -> None:
    wrote(paths.rank_log("s", 0, 1, 1), 40.0)
    assert last_sign_s(paths) == pytest.approx(40.0, abs=1e-3)


def test_a_record_of_how_the_attempt_ended_is_a_sign_of_its_task(paths: RunPaths) -> None:
    wrote(paths.completion("s", CompletionName(0, 1, "t", "stopped")), 50.0)
    assert last_sign_s(paths) == pytest.approx(50.0, abs=1e-3)


def test_files_of_an_earlier_job_are_no_sign_of_life_of_this_one(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path)
    wrote(paths.attempt("s", 0, 1), -100.0)
    assert last_sign_s(paths) == 0.0


def settled(paths: RunPaths) -> TaskAccounting | None:
    local.settle_left_tasks(paths, LocalBook(paths.local_dir))
    return LocalBook(paths.local_dir).state("1")


def queried(paths: RunPaths) -> TaskAccounting:
    scheduler = LocalScheduler(run_dir=paths.run_dir)
    return scheduler.query(Question(jobs={"n": "1"}, since_unix_s=0.0)).tasks[JobKey("n", "1")]


def cancelled(paths: RunPaths) -> TaskAccounting | None:
    LocalScheduler(run_dir=paths.run_dir).cancel([JobKey("n", "1")])
    return LocalBook(paths.local_dir).state("1")


@pytest.mark.parametrize(
    ("ask", "state"), [(settled, "NODE_FAIL"), (queried, "NODE_FAIL"), (cancelled, "CANCELLED")]
)
def test_a_task_of_a_killed_runner_ended_with_its_last_sign_of_life(
    paths: RunPaths, ask: Callable[[RunPaths], TaskAccounting], state: str
) -> None:
    wrote(paths.timing_dir("s", 0, 1) / "rank-00000.steps", 30.0)
    task = ask(paths)
    assert (task.state, task.end_unix_s) == (state, pytest.approx(START_UNIX_S + 30.0, abs=1e-3))


def test_the_end_of_a_task_whose_order_cannot_be_read_is_not_made_up(paths: RunPaths) -> None:
    paths.job_json("t").write_text("{")
    task = queried(paths)
    assert (task.state, task.end_unix_s) == ("NODE_FAIL", None)


def test_the_records_of_a_copied_run_give_its_times_and_not_its_files(
    paths: RunPaths,
) -> None:
    append_entry(paths.ledger_dir, "intent", "t", {})
    os.utime(paths.ledger_dir / "000001.json", (START_UNIX_S, START_UNIX_S))  # copied, it seems
    timing_dir = paths.timing_dir("s", 0, 1)
    timing_dir.mkdir(parents=True)
    step = {"step": 7, "start_unix_s": START_UNIX_S + 20.0, "step_s": 2.0, "memory_peak_bytes": 1e9}
    packed = pack_step({**dict.fromkeys((name for name, _ in STEP_FIELDS), 0), **step})
    (timing_dir / "rank-00000.steps").write_bytes(steps_header({}) + packed)
    (timing_dir / "rank-00001.steps").write_bytes(b"no steps at all\n")
    span = {"name": "x", "start_unix_s": START_UNIX_S + 20.0, "duration_s": 3.5}
    (timing_dir / "rank-00000.spans.jsonl").write_text(json.dumps(span) + "\n")
    assert last_sign_s(paths) == pytest.approx(23.5, abs=1e-3)
