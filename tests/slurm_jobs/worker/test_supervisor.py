"""Which slices of a packed task are tried again after a requeue, from records in a run folder."""

import dataclasses
import os
from pathlib import Path

import pytest

from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.worker.launch import RanksEnd
from slurm_jobs.worker.supervisor import SliceTask, _slices_to_skip
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
