"""Reader of the attempts at some slices of a run, from its records and the accounting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.formats.records.attempt_records import AttemptRecord, CompletionRecord
from slurm_jobs.run.accounted_starts import AttemptKey
from slurm_jobs.run.attempt_history import AttemptEntry, StageSources, attempt_history
from slurm_jobs.run_folder.ledger import Intent, intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_attempt, read_completion, read_meta
from slurm_jobs.run_folder.run_values import StageRecords
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.run_status import StageStatus


def slices_to_explain(
    stage: StageStatus, records: StageRecords, submitted: Collection[Intent]
) -> list[int]:
    """Return the slices that were tried more than once, wait again, or ended incomplete.

    A slice of several jobs is one of them, because a job that ends before its supervisor starts
    leaves no record.
    """
    num_jobs = Counter(
        index for intent in submitted if intent.stage == stage.stage.name for index in intent.slices
    )
    return [
        part.slice_index
        for part in stage.slices
        if len(records.attempts.get(part.slice_index, ())) > 1
        or num_jobs[part.slice_index] > 1
        or (part.status == "waiting" and part.slice_index in records.attempts)
        or (part.status not in {"completed", "running", "waiting"} and part.job_id is not None)
    ]


def read_attempts(
    run_dir: Path,
    stage: str,
    slices: Collection[int],
    records: StageRecords,
    *,
    accounting: Answer,
    answer: Answer,
) -> tuple[AttemptEntry, ...]:
    """Return the attempts at these slices; damaged records are left out.

    Args:
        run_dir: the run's folder.
        stage: name of the stage.
        slices: the slices to read.
        records: listing of the stage's records.
        accounting: accounting of the stage's jobs; without starts the records decide alone.
        answer: newest answer of the scheduler.
    """
    paths = RunPaths(run_dir)
    attempts: list[AttemptRecord] = []
    completions: dict[AttemptKey, CompletionRecord] = {}
    for index in slices:
        for number in records.attempts.get(index, ()):
            with suppress(DamagedFileError):
                record = read_attempt(paths, stage, index, number)
                attempts += [record] if record is not None else []
        for number, name in records.endings.get(index, {}).items():
            with suppress(DamagedFileError, FileNotFoundError):
                completions[index, number] = read_completion(paths, stage, name)
    sources = StageSources(
        stage=stage,
        run_name=read_meta(paths).name,
        records=attempts,
        completions=completions,
        accounting=accounting.starts,
        answer=answer if answer.asked_unix_s else None,
        intents=intents(read_ledger(paths.ledger_dir)),
    )
    chosen = frozenset(slices)
    return tuple(entry for entry in attempt_history(sources) if entry.slice_index in chosen)
