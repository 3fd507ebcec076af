"""Rows of the accounting joined to attempts: a row is one start of a job."""

from __future__ import annotations

from tests.slurm_jobs.run.ended_attempts import ended, history, record, row


def test_each_start_of_a_requeued_job_has_its_own_state_and_wait() -> None:
    starts = [row("PREEMPTED"), row("TIMEOUT", 200.0, 300.0), row("RUNNING", 400.0, None)]
    records = [record(), record(2, restart=1, at_s=203.0), record(3, restart=2, at_s=401.0)]
    completions = [ended("stopped", stop_request="sigterm")]
    entries = history(records, completions, starts)
    assert [e.ending for e in entries] == ["preempted", "time limit", "running"]
    assert [e.end_unix_s for e in entries] == [160.0, 300.0, None]
    assert [e.requeue_wait_s for e in entries] == [None, 43.0, 101.0]
    assert [e.lost_s for e in entries] == [None, 97.0, None]  # it may have saved what it did


def test_of_several_attempts_in_one_start_only_the_last_has_its_state() -> None:
    records = [record(), record(2, at_s=161.0)]
    completions = [ended("failed", reason="ValueError: x"), ended("completed", 2, at_s=200.0)]
    entries = history(records, completions, [row("COMPLETED", end_s=201.0)])
    assert [(e.ending, e.state) for e in entries] == [("failed", ""), ("completed", "COMPLETED")]


def test_a_start_without_a_supervisor_record_is_an_unnumbered_attempt() -> None:
    rows = [row("FAILED"), row("RUNNING", 200.0, None)]
    entries = history([record(at_s=203.0, restart=1)], [], rows)
    assert [(e.attempt, e.ending, e.state) for e in entries] == [
        (0, "failed", "FAILED"),
        (1, "running", "RUNNING"),
    ]
    assert entries[0].reason == "FAILED before its supervisor started; see its log"
    assert entries[0].lost_s == 63.0
