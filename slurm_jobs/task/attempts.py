"""Attempts at one slice: claimed before work begins, recorded when they end, counted again.

A job knows its own attempts by its token. They are opened by name, because listing a folder that
ten thousand tasks write to is slow.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.common.files import (
    create_once,
    dump_json,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.common.records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    Outcome,
    record_to_json,
)
from slurm_jobs.common.truncation import truncated
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.task.environment import JobEnvironment
from slurm_jobs.task.launch import AFTER_SIGTERM, RanksEnd


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceTask:
    """Supervision of one slice: the values that all its attempts share."""

    order: JobOrder
    paths: RunPaths
    environment: JobEnvironment
    slice_index: int
    base_attempt: int
    """Attempts up to this number belong to earlier jobs."""
    intent_number: int = 0
    """Number of the job's intent in the ledger, which is read at least up to there."""

    def claim(self) -> AttemptRecord:
        """Claim the next attempt number; the record exists before any work begins."""
        order, environment = self.order, self.environment
        make_private_dir(self.paths.attempts_dir(order.stage))
        for attempt in itertools.count(self.base_attempt + 1):
            record = AttemptRecord(
                stage=order.stage,
                slice_index=self.slice_index,
                attempt=attempt,
                job_id=environment.element_id,
                token=order.token,
                fingerprint=order.fingerprint,
                started_unix_s=time.time(),
                node_names=environment.node_names,
                host=socket.gethostname(),
                pid=os.getpid(),
                num_ranks=order.resources.num_ranks,
                scheduler=order.scheduler,
                restart=environment.restart,
                gpu=environment.gpu,
                num_again=order.num_again.get(self.slice_index, 0),
            )
            path = self.paths.attempt(order.stage, self.slice_index, attempt)
            if create_once(path, dump_json(record_to_json(record)).encode()):
                return record
        raise AssertionError

    def record_end(
        self, record: AttemptRecord, end: RanksEnd, result: Mapping[str, Any]
    ) -> CompletionRecord:
        """Record how an attempt ended."""
        completion = CompletionRecord(
            stage=record.stage,
            slice_index=record.slice_index,
            attempt=record.attempt,
            job_id=record.job_id,
            token=record.token,
            outcome=end.outcome,
            fingerprint=self.order.fingerprint,
            started_unix_s=record.started_unix_s,
            ended_unix_s=time.time(),
            exit_code=end.exit_code,
            signal=end.signal,
            failed_rank=end.failed_rank,
            failed_node=end.failed_node,
            reason=truncated(end.reason),
            retryable=end.retryable,
            result=result,
        )
        path = self._completion_path(record.attempt, end.outcome)
        make_private_dir(path.parent)
        write_json_atomic(path, record_to_json(completion))
        return completion

    def num_own(self, outcome: Outcome) -> int:
        """Return how many of this job's attempts at the slice had this outcome."""
        return sum(self._completion_path(n, outcome).exists() for n in self._own_attempts())

    def has_failed_for_good(self) -> bool:
        """Check whether this job failed too often, or once with an error that no retry can fix.

        Failures after SIGTERM do not count: the scheduler decided whether the job runs again.
        """
        paths = (self._completion_path(n, "failed") for n in self._own_attempts())
        records = [read_json(path) for path in paths if path.exists()]
        counted = [r for r in records if not r["reason"].startswith(AFTER_SIGTERM)]
        return len(counted) > self.order.retries or not all(r["retryable"] for r in counted)

    def is_complete(self) -> bool:
        """Check whether this job has completed the slice, before it was requeued.

        A later submit of a complete slice requests a new run of it.
        """
        paths = (self._completion_path(n, "completed") for n in self._own_attempts())
        return any(
            read_json(path)["fingerprint"] == self.order.fingerprint
            for path in paths
            if path.exists()
        )

    def _completion_path(self, attempt: int, outcome: Outcome) -> Path:
        name = CompletionName(self.slice_index, attempt, self.order.token, outcome)
        return self.paths.completion(self.order.stage, name)

    def _own_attempts(self) -> Iterator[int]:
        for attempt in itertools.count(self.base_attempt + 1):
            path = self.paths.attempt(self.order.stage, self.slice_index, attempt)
            if not path.exists():
                return
            if read_json(path)["token"] == self.order.token:
                yield attempt
