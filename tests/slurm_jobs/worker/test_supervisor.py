"""Slices that are tried again, and intents that a ledger whose listing is old does not show."""

import dataclasses
import json
import os
import time as time_module
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder import ledger
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.worker import supervisor
from slurm_jobs.worker.job_identity import JobEnvironment
from slurm_jobs.worker.launch import RanksEnd
from slurm_jobs.worker.supervisor import (
    LISTING_PATIENCE_S,
    SliceTask,
    _slices_to_skip,
    _supervise_slice,
    own_intent,
)
from tests.slurm_jobs.worker.orders import environment, order

FAILED = RanksEnd(outcome="failed", exit_code=1, reason="it broke")
COMPLETED = RanksEnd(outcome="completed")


def slice_task(run_dir: Path, index: int, *ends: RanksEnd, retries: int = 0) -> SliceTask:
    """A slice of job `t` whose attempts have ended so."""
    task = SliceTask(
        order=dataclasses.replace(order(run_dir), retries=retries),
        paths=RunPaths(run_dir),
        environment=environment("n1"),
        slice_index=index,
        base_attempt=0,
    )
    for end in ends:
        task.record_end(task.claim(), end, {})
    return task


@pytest.mark.parametrize(
    ("retries", "ends", "expected"),
    [
        (0, [FAILED], True),
        (1, [FAILED], False),
        (1, [FAILED, FAILED], True),
        (2, [dataclasses.replace(FAILED, retryable=False)], True),
        (0, [dataclasses.replace(FAILED, after_sigterm=True)], False),
        (0, [RanksEnd(outcome="stopped", exit_code=75)], False),
        (0, [], False),
    ],
    ids=["no retry", "one left", "none left", "no use", "preempted", "stopped", "new"],
)
def test_a_slice_is_given_up_when_its_own_failures_leave_no_attempt(
    tmp_path: Path, retries: int, ends: list[RanksEnd], *, expected: bool
) -> None:
    task = slice_task(tmp_path, 0, *ends, retries=retries)
    assert (_slices_to_skip([task, slice_task(tmp_path, 1)]) == [task]) is expected


def test_work_on_files_whose_names_are_no_utf8_counts(tmp_path: Path) -> None:
    task = slice_task(tmp_path, 0)
    result = {"outputs": {os.fsdecode(b"caf\xe9.txt"): 1}}
    record = task.record_end(task.claim(), COMPLETED, result)
    name = CompletionName(0, record.attempt, record.token, "completed")
    assert task.is_complete()
    assert read_completion(task.paths, "s", name).result == result


def test_a_failed_slice_is_tried_again_where_it_is_all_that_is_left(tmp_path: Path) -> None:
    failed = slice_task(tmp_path, 0, FAILED)
    assert _slices_to_skip([failed]) == []
    assert _slices_to_skip([failed, slice_task(tmp_path, 1, COMPLETED)]) == []


class FailingRanks:
    """Ranks that fail as soon as they are started, without any signal."""

    stop_signalled = False

    def __init__(self) -> None:
        self.num_starts = 0

    def run(self, _task_dir: Path, **_: object) -> RanksEnd:
        self.num_starts += 1
        return FAILED


def test_a_failure_after_sigterm_takes_none_of_the_retries(tmp_path: Path) -> None:
    append_entry(RunPaths(tmp_path).ledger_dir, "intent", "t", {**INTENT, "slices": "0"})
    task = slice_task(tmp_path, 0, dataclasses.replace(FAILED, after_sigterm=True), retries=1)
    ranks = FailingRanks()
    assert _supervise_slice(task, cast("Any", ranks)) == 1
    assert ranks.num_starts == 2


INTENT = {
    "stage": "s",
    "slices": "3",
    "is_array": True,
    "fingerprint": "f",
    "job_name": "n",
    "base_attempts": {},
}


class Clock:
    """Time passes by sleeping alone; after `hidden_s` the folder shows what is in it."""

    def __init__(self, hidden_s: float) -> None:
        self.now_s, self.hidden_s = 100.0, 100.0 + hidden_s

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic
    strftime = staticmethod(time_module.strftime)
    gmtime = staticmethod(time_module.gmtime)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run with job `t`, which is to work on slice 3."""
    found = RunPaths(tmp_path)
    append_entry(found.ledger_dir, "begin", "c", {})
    append_entry(found.ledger_dir, "intent", "t", INTENT)
    found.job_dir("t").mkdir(parents=True)
    write_json_atomic(found.job_json("t"), order_to_json(order(tmp_path, is_array=True)))
    return found


def hide(monkeypatch: pytest.MonkeyPatch, hidden_s: float) -> Clock:
    clock, last = Clock(hidden_s), ledger.last_number
    monkeypatch.setattr(supervisor, "time", clock)

    def listed(folder: Path) -> int:
        return last(folder) if clock.now_s >= clock.hidden_s else 1

    monkeypatch.setattr(ledger, "last_number", listed)
    return clock


@pytest.mark.parametrize("hidden_s", [0.0, 7.0, LISTING_PATIENCE_S])
def test_a_job_looks_for_its_intent_as_long_as_nfs_may_hide_it(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, hidden_s: float
) -> None:
    clock = hide(monkeypatch, hidden_s)
    found = own_intent(paths, "t")
    assert found is not None
    assert found.number == 2
    assert clock.now_s - clock.hidden_s < 3.0


def test_a_job_that_never_sees_its_intent_fails_and_is_not_superseded(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = hide(monkeypatch, 3600.0)
    monkeypatch.setattr(supervisor, "read_environment", read_environment)
    assert supervisor.supervise(paths.run_dir, "t") == 1
    assert LISTING_PATIENCE_S <= clock.now_s - 100.0 < LISTING_PATIENCE_S + 3.0
    (record,) = paths.completions_dir("s").iterdir()
    assert record.name == "s00003.a0001.t.failed.json"
    assert f"own entry in {paths.ledger_dir}" in json.loads(record.read_bytes())["reason"]


def read_environment(*_: object) -> JobEnvironment:
    return environment("n1")


def test_an_intent_that_was_seen_once_is_not_lost_from_sight_again(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_intent(paths, "t")
    environment_ = environment("n1")
    read = supervisor.read_order(paths.job_json("t"))
    (task,) = supervisor.slice_tasks(read, paths, environment_, own)
    hide(monkeypatch, 3600.0)
    assert not supervisor._is_superseded(task)


def test_a_job_whose_slice_a_later_one_has_is_superseded(paths: RunPaths) -> None:
    own = own_intent(paths, "t")
    read = supervisor.read_order(paths.job_json("t"))
    (task,) = supervisor.slice_tasks(read, paths, environment("n1"), own)
    assert not supervisor._is_superseded(task)
    append_entry(paths.ledger_dir, "intent", "u", INTENT)
    assert supervisor._is_superseded(task)
