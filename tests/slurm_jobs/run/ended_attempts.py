"""Records of attempts, rows of the accounting, and the history that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.run.attempt_history import AttemptEntry, StageSources, attempt_history
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.schedulers.protocol import Answer

NAME = "r.train.t"


def record(attempt: int = 1, *, restart: int = 0, at_s: float = 100.0, job: str = "7", index=0):
    return AttemptRecord(
        stage="train", slice_index=index, attempt=attempt, job_id=job, token="t", fingerprint="f",
        started_unix_s=at_s, node_names=("v1", "v2"), host="h", pid=1, num_ranks=2,
        scheduler="slurm", restart=restart,
    )  # fmt: skip


def ended(outcome: Any, attempt: int = 1, *, at_s: float = 160.0, index: int = 0, **values: Any):
    return CompletionRecord(
        stage="train", slice_index=index, attempt=attempt, job_id="7", token="t", outcome=outcome,
        fingerprint="f", started_unix_s=100.0, ended_unix_s=at_s, exit_code=0, **values,
    )  # fmt: skip


def row(state: str, start_s: float = 98.0, end_s: float | None = 161.0, job: str = "7", **values):
    return TaskAccounting(
        job_id=job, state=state, source="sacct", job_name=NAME, start_unix_s=start_s,
        end_unix_s=end_s, node_list="v[1-2]", time_limit_s=600.0, **values,
    )  # fmt: skip


def intent(**values: Any) -> Intent:
    return Intent(
        number=1, token="t", stage="train", slices=(0,), is_array=False, fingerprint="f",
        job_name=NAME, time_unix_s=90.0, job_id="7", **values,
    )  # fmt: skip


def history(
    records: list[AttemptRecord],
    completions: Sequence[CompletionRecord] = (),
    rows: Sequence[TaskAccounting] = (),
    answer: Answer | None = None,
    **changes: Any,
) -> tuple[AttemptEntry, ...]:
    sources = StageSources(
        stage="train",
        run_name="r",
        records=records,
        completions={(c.slice_index, c.attempt): c for c in completions},
        accounting=rows,
        answer=answer,
        intents=[intent(**changes)],
    )
    return attempt_history(sources)
