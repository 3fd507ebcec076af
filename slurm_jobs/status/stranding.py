"""Reasons why work can never start, named by the stage that caused it. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.schedulers.job_states import LIVING_STATES, NEVER, PENDING_STATES, Wait
from slurm_jobs.status.run_status import StageStatus
from slurm_jobs.status.slice_status import SliceStatus

Parents = Sequence[tuple[str, StageStatus]]
"""Stages that a stage comes after, each with the kind of dependency."""


@dataclass(frozen=True, slots=True)
class StrandingCause:
    """Cause for which slices are stranded."""

    reason: str
    wait: Wait = ""
    is_not_needed: bool = False
    """True if they handle an event that did not happen."""

    def stranded(self, part: SliceStatus) -> SliceStatus:
        """Return the status of a slice that is stranded for this cause."""
        return replace(part, status="stranded", reason=self.reason, wait=self.wait)


def stage_cause(parents: Parents) -> StrandingCause | None:
    """Return why a stage can never start.

    The scheduler removes a parent's job that can never start, which satisfies `afterany` and
    `afternotok`. If the job stays in the queue (`stuck`), they are not satisfied.
    """
    for kind, parent in parents:
        name, counts = f"`{parent.stage.name}`", parent.counts
        if kind == "afternotok" and parent.status == "completed":
            return StrandingCause(f"not needed: {name} completed", is_not_needed=True)
        is_met = kind != "afterok" and not parent.stuck
        if kind == "aftercorr" or is_met:
            continue
        waits = counts["running"] or counts["waiting"]
        if parent.status == "stranded" or (parent.stuck and not waits):
            return _cause_of(name, kind, parent)
        if kind == "afterok" and parent.status in {"failed", "cancelled"}:
            return StrandingCause(f"{name} {parent.status}")
        if kind == "afterok" and (counts["failed"] or counts["cancelled"]):
            return StrandingCause(f"{name} has slices that failed or were cancelled")
    return None


def _cause_of(name: str, kind: str, parent: StageStatus) -> StrandingCause:
    """Return why nothing that depends on the stage `parent` can start."""
    unknown = StrandingCause(f"{name} can never start")
    if parent.is_not_needed and kind != "afterok":
        return unknown  # its job is of an earlier version, and stays in the queue
    stuck_cause = _stuck_cause(name, parent.slices)
    if stuck_cause is not None:
        return stuck_cause
    for part in parent.slices:
        if part.slice_index in parent.stuck and part.reason and part.wait != "unmet":
            return StrandingCause(part.reason, part.wait)
    if not parent.reason:
        return unknown
    return StrandingCause(parent.reason, parent.wait, is_not_needed=parent.is_not_needed)


def element_cause(part: SliceStatus, parents: Parents) -> StrandingCause | None:
    """Return why this slice alone can never start: its element in a parent stage (`aftercorr`)."""
    for kind, parent in parents:
        if kind != "aftercorr":
            continue
        above = parent.slices[part.slice_index]
        name = f"`{parent.stage.name}` slice {above.slice_index}"
        if above.status == "stranded":
            return _stuck_cause(name, [above]) or StrandingCause(
                above.reason, above.wait, is_not_needed=parent.is_not_needed
            )
        if above.status in {"failed", "cancelled"}:
            return StrandingCause(f"{name} {above.status}")
    return None


def stuck_slices(
    summary: StageSummary,
    slices: Iterable[SliceStatus],
    parents: Parents,
    own: Mapping[int, Intent],
    stuck_jobs: dict[JobKey, StrandingCause],
) -> dict[int, StrandingCause | None]:
    """Return the stuck slices of a stage, each with the cause if its job waits for a stuck one.

    A job may wait for more than its stage comes after: for an earlier job of the same stage, and
    for all of an array of which the spec names single elements.

    Args:
        summary: the stage.
        slices: status of each slice.
        parents: of the stage.
        own: the newest intent, by slice.
        stuck_jobs: cause for what waits for a stuck job or element; those of this stage are added.
    """
    paired = [parent for kind, parent in parents if kind == "aftercorr"]
    whole = [(kind, parent) for kind, parent in parents if kind != "aftercorr"]
    waits_for_stuck = any(parent.stuck for _, parent in whole)
    is_unmet = any(not parent.stuck and _is_unmet(kind, parent) for kind, parent in whole)
    cause = stage_cause(parents)
    found: dict[int, StrandingCause | None] = {}
    pending = [s for s in slices if s.state in PENDING_STATES and s.slice_index in own]
    for part in sorted(pending, key=lambda part: own[part.slice_index].number):
        index, key = part.slice_index, part.job
        assert key is not None
        above = _stuck_job_above(own[index], key, stuck_jobs)
        # Slurm keeps a job, also a held one, until one of its dependencies can no longer be met.
        is_removed = is_unmet or (above is None and any(_has_ended_badly(p, index) for p in paired))
        waits = waits_for_stuck or above is not None or any(index in p.stuck for p in paired)
        is_stuck = waits or (part.status == "stranded" and part.wait)
        if part.wait != "unmet" and (is_removed or not is_stuck):
            continue
        found[index] = above
        label = f"`{summary.name}`" + (f" slice {index}" if summary.is_array else "")
        known = _stuck_cause(label, [part]) or above or cause or element_cause(part, parents)
        stuck_jobs[key] = known or StrandingCause(f"{label} can never start")
        stuck_jobs.setdefault(key.job, stuck_jobs[key])
    return found


def _stuck_job_above(
    intent: Intent, element: JobKey, stuck_jobs: Mapping[JobKey, StrandingCause]
) -> StrandingCause | None:
    """Return why a job or element that this one was submitted to wait for never starts."""
    number = element.job_id.partition("_")[2]
    for kind, keys in (intent.dependencies or {}).items():
        for key in keys:
            awaited = JobKey(key.name, f"{key.job_id}_{number}") if kind == "aftercorr" else key
            if awaited in stuck_jobs:
                return stuck_jobs[awaited]
    return None


def _has_ended_badly(parent: StageStatus, index: int) -> bool:
    """Check whether a slice has failed, or its job will be removed, so that `aftercorr` fails."""
    return index not in parent.stuck and parent.slices[index].status in _UNSUCCESSFUL


def _is_unmet(kind: str, parent: StageStatus) -> bool:
    """Check whether the dependency on all of a stage without stuck jobs can no longer be met.

    Slurm decides that for an array only when all of its elements have ended.
    """
    if kind == "afternotok":
        return parent.status == "completed"
    is_over = not (parent.counts["running"] or parent.counts["waiting"])
    return kind == "afterok" and is_over and parent.status in _UNSUCCESSFUL


def cause_of_removal(
    parents: Parents, newest: Mapping[str, Mapping[int, Intent]], since: int
) -> StrandingCause | None:
    """Return why Slurm removed jobs that never started, if neither stage nor element explains it.

    Where array elements do not correspond, `aftercorr` waits for all of the other stage. And the
    scheduler may have lost a node after the last record was written.

    A command submits parents before children. So a parent's job that is older than the waiting
    stage's previous job, the intent `since`, belongs to an earlier command and explains nothing:
    then a person ended the job.
    """
    for kind, parent in parents:
        if kind not in {"afterok", "aftercorr"}:
            continue
        intents = newest[parent.stage.name]
        recent = {index for index, intent in intents.items() if intent.number > since}
        awaited = [part for part in parent.slices if part.slice_index in recent]
        if any(part.status in {"failed", "cancelled", "stranded"} for part in awaited):
            return StrandingCause(f"`{parent.stage.name}` has slices that failed or were cancelled")
        ended = {part.state for part in awaited} - LIVING_STATES - {None, "COMPLETED"}
        if parent.status == "completed" and ended:
            return StrandingCause(NEVER, wait="unmet")
    return None


def first_stuck(slices: Iterable[SliceStatus]) -> SliceStatus | None:
    """Return a slice whose job is in the queue and is held, or over a limit."""
    stuck = (s for s in slices if s.status == "stranded" and s.wait not in {"", "unmet"})
    return next(stuck, None)


def _stuck_cause(name: str, slices: Iterable[SliceStatus]) -> StrandingCause | None:
    """Return `` `count` is held (JobHeldUser) `` where a job of `name` does not start."""
    stuck = first_stuck(slices)
    if stuck is None:
        return None
    is_held = stuck.wait in {"held", "held_by_admin"}
    return StrandingCause(f"{name} {'is ' if is_held else ''}{stuck.reason}")


_UNSUCCESSFUL = frozenset({"failed", "cancelled", "stranded"})
