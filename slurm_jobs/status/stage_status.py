"""Status of a stage, from that of its slices and of its parents. PURE."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.status.run_status import StageStatus
from slurm_jobs.status.slice_status import (
    SliceStatus,
    Status,
)
from slurm_jobs.status.stranding import (
    Parents,
    StrandingCause,
    cause_of_removal,
    element_cause,
    first_stuck,
    stage_cause,
)


def stage_status(
    summary: StageSummary,
    slices: Sequence[SliceStatus],
    parents: Parents,
    newest: Mapping[str, Mapping[int, Intent]],
    earlier: Mapping[int, int],
    *,
    stuck: Mapping[int, StrandingCause | None],
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
    shown = StrandingCause("")
    if status == "stranded":
        if cause is not None:
            shown = cause
        elif first_stuck(marked) or "aftercorr" in summary.after.values():
            first = next(s for s in marked if s.status == "stranded")
            shown = element_cause(first, parents) or StrandingCause(first.reason, first.wait)
    return StageStatus(
        stage=summary,
        status=status,
        slices=tuple(marked),
        reason=shown.reason,
        wait=shown.wait,
        is_not_needed=shown.is_not_needed,
        stuck=frozenset(stuck),
    )
