"""Status of a run: (plan, ledger, records, scheduler's answer) -> status with source.

Only a completion record proves that work is done. The scheduler's word explains a failure; it
never proves a success. Unknown is never success, and never failure. PURE.
"""

from __future__ import annotations

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.status.run_status import DECIDING_FIRST, RunStatus, StageStatus
from slurm_jobs.status.slice_status import (
    Status,
    slice_status,
    to_be_submitted,
)
from slurm_jobs.status.stage_status import stage_status
from slurm_jobs.status.stranding import (
    StrandingCause,
    stuck_slices,
)


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Return the status of every slice, of each stage and of the run."""
    stages: dict[str, StageStatus] = {}
    ages: dict[str, Ages] = {}
    newest: dict[str, dict[int, Intent]] = {}
    stuck_jobs: dict[JobKey, StrandingCause] = {}
    is_silent = not answer.knows_the_living
    for summary in run.stages:
        name, after = summary.name, summary.after
        intents = newest[name] = latest_intents(run.intents, name)
        outdated = outdated_slices(after, intents, ages)
        slices = []
        for i in range(summary.num_slices):
            part = slice_status(
                i,
                intents.get(i),
                run.records[name],
                answer,
                is_submitting=run.is_submitting,
                several_partitions="," in summary.partition,
            )
            if part.status == "completed" and i in outdated:
                reason = "its inputs were submitted later; `resume` runs it again"
                part = to_be_submitted(i, reason, is_submitting=run.is_submitting)
            slices.append(part)
        parents = [(kind, stages[parent]) for parent, kind in after.items()]
        earlier = {
            i: intent.number
            for intent in run.intents
            if intent.stage == name
            for i in intent.slices
            if intents[i] is not intent
        }
        stuck = stuck_slices(summary, slices, parents, intents, stuck_jobs)
        stage = stage_status(
            summary, slices, parents, newest, earlier, stuck=stuck, is_silent=is_silent
        )
        stages[name] = stage
        ages[name] = ages_of(after, {} if stage.is_not_needed else intents, ages, len(slices))
    # Where no source reports which jobs are alive, unknown ones may still be running.
    order: tuple[Status, ...] = ("unknown", *DECIDING_FIRST) if is_silent else DECIDING_FIRST
    words = {stage.status for stage in stages.values() if not stage.is_not_needed}
    return RunStatus(
        status=next((word for word in order if word in words), "completed"),
        stages=tuple(stages.values()),
        problems=answer.problem_texts,
        notes=answer.notes,
        asked_unix_s=answer.asked_unix_s or None,
        knows_the_living=answer.knows_the_living,
        doubts=answer.doubts,
    )
