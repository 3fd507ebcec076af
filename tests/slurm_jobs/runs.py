"""Stages, jobs and records of runs that were never made, and what a scheduler says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from slurm_jobs.formats.records.attempt_records import CompletionName, Outcome, TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus

META = RunMeta(
    run_id="r", name="r", created_unix_s=0, submitted_by="u", host="h", scheduler="slurm",
    version="0", spec_file="s",
)  # fmt: skip
NEVER = "DependencyNeverSatisfied"
WAITS = "PENDING:Dependency"
DONE: Mapping[int, Outcome] = {1: "completed"}
FAILED: Mapping[int, Outcome] = {1: "failed"}
Ends = Mapping[int, Mapping[int, Outcome]]
"""Outcome by attempt by slice."""


def name_of(job_id: str) -> str:
    """What the job of an id is called, as long as a test does not say otherwise."""
    return f"n{job_id.partition('_')[0]}"


def job(job_id: str) -> JobKey:
    """The job or element of an id."""
    return JobKey(name_of(job_id), job_id)


def stage(name: str, num_slices: int = 1, **after: str) -> StageSummary:
    return StageSummary(
        name=name,
        run="x",
        num_slices=num_slices,
        is_array=num_slices > 1,
        retries=0,
        fingerprint="f",
        after=after,
    )


def intent(number: int, name: str, job_id: str | None, num_slices: int = 1, **more: Any) -> Intent:
    known: dict[str, Any] = {
        "number": number,
        "token": f"t{number}",
        "stage": name,
        "slices": tuple(range(num_slices)),
        "is_array": num_slices > 1,
        "fingerprint": "f",
        "job_name": name_of(job_id or f"none-{number}"),
        "time_unix_s": 0.0,
        "job_id": job_id,
    }
    return Intent(**{**known, **more})


def run_records(
    stages: Sequence[StageSummary],
    intents: Sequence[Intent],
    ends: Mapping[str, Ends] | None = None,
    begun: Mapping[str, Mapping[int, int]] | None = None,
) -> RunRecords:
    """Attempts end as in `ends`; those of `begun`, by stage and slice, have not ended."""
    records = {}
    for summary in stages:
        outcomes = (ends or {}).get(summary.name, {})
        attempts = {index: tuple(sorted(found)) for index, found in outcomes.items()}
        attempts |= {i: (number,) for i, number in (begun or {}).get(summary.name, {}).items()}
        endings = {
            index: {a: _ending(intents, summary.name, index, a, word) for a, word in found.items()}
            for index, found in outcomes.items()
        }
        records[summary.name] = StageRecords(attempts=attempts, endings=endings)
    return RunRecords(meta=META, stages=tuple(stages), intents=tuple(intents), records=records)


def _ending(
    intents: Sequence[Intent], stage: str, index: int, attempt: int, outcome: Outcome
) -> CompletionName:
    """Of the newest job that had the slice and may have made this attempt."""
    owners = [
        i.token
        for i in intents
        if i.stage == stage and index in i.slices and attempt > i.base_attempts.get(index, 0)
    ]
    return CompletionName(index, attempt, owners[-1] if owners else "none", outcome)


def answer(states: Mapping[str, str], source: str = "squeue", **more: Any) -> Answer:
    """States are Slurm's words by job; a reason may follow a colon."""
    tasks = {}
    for job_id, said in states.items():
        state, _, reason = said.partition(":")
        tasks[job(job_id)] = TaskAccounting(
            job_id=job_id, job_name=name_of(job_id), state=state, source=source, reason=reason
        )
    return Answer(tasks=tasks, **more)


def reconciled(
    stages: Sequence[StageSummary],
    states: Mapping[str, str],
    done: Collection[str] = (),
    *,
    ends: Mapping[str, Ends] | None = None,
    intents: Sequence[Intent] | None = None,
    source: str = "squeue",
    **more: Any,
) -> RunStatus:
    """A run whose job ids are its stages' names; all slices of `done` stages are complete."""
    jobs = [intent(n, s.name, s.name, s.num_slices) for n, s in enumerate(stages, 1)]
    completed = {s.name: dict.fromkeys(range(s.num_slices), DONE) for s in stages if s.name in done}
    known = run_records(stages, jobs if intents is None else intents, {**completed, **(ends or {})})
    return reconcile(known, answer(states, source, **more))


def statuses(found: RunStatus) -> str:
    """The status of each stage in order, and that of the run."""
    return f"{' '.join(part.status for part in found.stages)} -> {found.status}"
