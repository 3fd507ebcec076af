"""How attempts ended, and why, from their records and the rows of the accounting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.formats.records.attempt_records import AFTER_SIGTERM, CompletionRecord
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.slice_status import UNRECORDED
from tests.slurm_jobs.run.ended_attempts import ended, history, record, row

KILLED = {"reason": f"{AFTER_SIGTERM}rank 0 on v1 was killed by SIGTERM"}


@pytest.mark.parametrize(
    ("completion", "state", "ending", "reason"),
    [
        (ended("completed"), "COMPLETED", "completed", ""),
        (ended("completed"), "TIMEOUT", "completed", ""),
        (ended("failed", reason="ValueError: x"), "FAILED", "failed", "ValueError: x"),
        (ended("failed", reason="ValueError: x"), None, "failed", "ValueError: x"),
        (
            ended("stopped", stop_request="time limit"),
            "REQUEUED",
            "time limit",
            "its time limit came near; it stopped in time",
        ),
        (
            ended("failed", stop_request="sigterm", **KILLED),
            "TIMEOUT",
            "time limit",
            "its time limit of 10 min was over; rank 0 on v1 was killed by SIGTERM",
        ),
        (
            None,
            "TIMEOUT",
            "time limit",
            "its time limit of 10 min was over; it was killed before it could record its end",
        ),
        (
            ended("stopped", stop_request="sigterm"),
            "PREEMPTED",
            "preempted",
            "Slurm gave its nodes to a job of higher priority; it stopped in time",
        ),
        (
            ended("stopped", stop_request="preemption"),
            "REQUEUED",
            "preempted",
            "Slurm gave its nodes to a job of higher priority; it stopped in time",
        ),
        (
            ended("stopped", stop_request="stop signal"),
            "REQUEUED",
            "stop signal",
            (
                "it got the stop signal long before its time limit, as by `scancel --signal`; it "
                "stopped in time"
            ),
        ),
        (
            ended("stopped", stop_request="sigterm"),
            "REQUEUED",
            "requeued",
            "Slurm put its job back into the queue, as by `scontrol requeue`; it stopped in time",
        ),
        (
            ended("stopped", stop_request="sigterm"),
            "CANCELLED",
            "cancelled",
            "cancelled by scancel, an administrator or Slurm itself; it stopped in time",
        ),
        (
            None,
            "NODE_FAIL",
            "node failure",
            "its node failed, or was taken down; it was killed before it could record its end",
        ),
        (
            ended("failed", reason="rank 1 on v1 was killed by SIGKILL"),
            "OUT_OF_MEMORY",
            "out of memory",
            "it used more memory than it had requested; rank 1 on v1 was killed by SIGKILL",
        ),
        (
            ended("superseded", reason="a later attempt"),
            "COMPLETED",
            "superseded",
            "a later attempt",
        ),
        (
            ended("stopped", stop_request="sigterm"),
            None,
            "stopped",
            "it was asked to stop, and no source has by what; it stopped in time",
        ),
        (
            ended("stopped"),  # of an older version
            "REQUEUED",
            "stopped",
            "it was asked to stop, and no source has by what; it stopped in time",
        ),
        (None, "RUNNING", "running", ""),
        (None, "FAILED", "failed", f"FAILED {UNRECORDED}"),
        (
            None,
            "COMPLETED",
            "unknown",
            "sacct says COMPLETED, but it left no completion record",
        ),
        (None, None, "unknown", "it left no completion record"),
    ],
)
def test_an_attempt_ended_by_the_more_telling_of_its_two_sources(
    completion: CompletionRecord | None, state: str | None, ending: str, reason: str
) -> None:
    rows = [] if state is None else [row(state, end_s=None if state == "RUNNING" else 161.0)]
    (entry,) = history([record()], [completion] if completion else [], rows)
    assert (entry.ending, entry.reason, entry.state) == (ending, reason, state or "")


def test_a_cancel_by_this_tool_is_told_from_one_by_others() -> None:
    stopped = [ended("stopped", stop_request="sigterm")]
    cancelled = frozenset({0})
    (entry,) = history([record()], stopped, [row("CANCELLED")], cancelled_slices=cancelled)
    assert entry.ending == "cancelled"
    assert "`slurm-jobs cancel`" in entry.reason


def test_without_accounting_a_later_start_shows_that_a_job_was_requeued() -> None:
    entries = history([record(), record(2, restart=1, at_s=300.0)], [ended("completed", 2)])
    assert [e.ending for e in entries] == ["requeued", "completed"]


def test_a_job_that_waits_for_its_next_start_has_been_requeued() -> None:
    waiting = row("PENDING", 0.0, None)
    answer = Answer(tasks={waiting.key: waiting}, asked_unix_s=200.0)
    (entry,) = history([record()], answer=answer)
    assert (entry.ending, entry.state) == ("requeued", "")


def test_an_attempt_that_began_after_the_query_runs_and_was_not_requeued() -> None:
    waiting = row("PENDING", 0.0, None)
    answer = Answer(tasks={waiting.key: waiting}, asked_unix_s=99.0)
    (entry,) = history([record(at_s=100.0)], answer=answer)
    assert (entry.ending, entry.lost_s) == ("running", None)


def test_a_start_that_a_signal_ended_before_its_record_names_the_signal() -> None:
    (entry,) = history([], [], [replace(row("FAILED"), signal=9)])
    assert entry.reason == "FAILED by SIGKILL before its supervisor started; see its log"
