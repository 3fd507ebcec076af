"""Status of a run: (plan, ledger, records, scheduler's answer) -> status with source.

Only a completion record proves that work is done. The scheduler's word explains a failure; it
never proves a success. Unknown is never success, and never failure. PURE.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.run_values import RunRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.shared.records.job_key import JobKey
from slurm_jobs.status.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.status.run_status import DECIDING_FIRST, RunStatus, StageStatus
from slurm_jobs.status.slice_status import (
    SliceStatus,
    Status,
    slice_status,
    to_be_submitted,
)
from slurm_jobs.status.stranding import (
    Cause,
    Parents,
    cause_of_removal,
    element_cause,
    first_stuck,
    stage_cause,
    stuck_slices,
)


def reconcile(run: RunRecords, answer: Answer) -> RunStatus:
    """Return the status of every slice, of each stage and of the run."""
    stages: dict[str, StageStatus] = {}
    ages: dict[str, Ages] = {}
    newest: dict[str, dict[int, Intent]] = {}
    stuck_jobs: dict[JobKey, Cause] = {}
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
        stage = _stage_status(
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
        problems=answer.problems,
        notes=answer.notes,
        asked_unix_s=answer.asked_unix_s or None,
        knows_the_living=answer.knows_the_living,
        doubts=answer.doubts,
    )


def _stage_status(
    summary: StageSummary,
    slices: Sequence[SliceStatus],
    parents: Parents,
    newest: Mapping[str, Mapping[int, Intent]],
    earlier: Mapping[int, int],
    *,
    stuck: Mapping[int, Cause | None],
    is_silent: bool,
) -> StageStatus:
    """Return the status of a stage; slices that wait for what cannot happen become stranded.

    So do slices that lost their job by that: Slurm removes jobs that can never start, with
    `--kill-on-invalid-dep=yes`, and without accounting it forgets them after some minutes.

    Args:
        summary: the stage.
        slices: status of each slice, as if no other stage mattered.
        parents: of the stage.
        newest: the newest intent, by stage and slice.
        earlier: number of the intent before the newest, by slice of this stage.
        stuck: stuck slices of this stage, as `stuck_slices` returns them.
        is_silent: no source reports which jobs are alive.
    """
    cause = stage_cause(parents)
    # The same for all slices of a job.
    removal_cause = functools.cache(functools.partial(cause_of_removal, parents, newest))
    marked = []
    for part in slices:
        has_job = part.job_id is not None
        waits = part.status == "stranded" or (part.status == "waiting" and has_job)
        is_forgotten = part.status == "unknown" and has_job and not is_silent
        may_be_removed = not part.attempt and (part.cause == "cancelled elsewhere" or is_forgotten)
        cause_of_part = None
        if waits or may_be_removed:
            cause_of_part = cause or element_cause(part, parents) or stuck.get(part.slice_index)
        if cause_of_part is None and may_be_removed:
            cause_of_part = removal_cause(earlier.get(part.slice_index, 0))
        marked.append(part if cause_of_part is None else cause_of_part.stranded(part))
    counts = Counter(s.status for s in marked)
    order: tuple[Status, ...] = ("running", "failed", "unknown", "cancelled", "stranded", "waiting")
    status: Status = next((word for word in order if counts[word]), "completed")
    if is_silent and counts["unknown"]:
        status = "unknown"  # work that may still run is not over because something else failed
    elif counts["waiting"] and status not in {"running", "waiting"}:
        # Some will start, regardless of the others.
        has_begun = status != "stranded" and (counts["completed"] or counts["failed"])
        status = "running" if has_begun else "waiting"
    shown = Cause("")
    if status == "stranded":
        if cause is not None:
            shown = cause
        elif first_stuck(marked) or "aftercorr" in summary.after.values():
            first = next(s for s in marked if s.status == "stranded")
            shown = element_cause(first, parents) or Cause(first.reason, first.wait)
    return StageStatus(
        stage=summary,
        status=status,
        slices=tuple(marked),
        reason=shown.reason,
        wait=shown.wait,
        is_not_needed=shown.is_not_needed,
        stuck=frozenset(stuck),
    )
