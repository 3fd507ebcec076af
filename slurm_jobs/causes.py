"""Reasons why work can never start, named by the stage that caused it. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_jobs.schedulers.states import LIVING_STATES, NEVER
from slurm_jobs.slice_status import CANCELLED_ELSEWHERE, SliceStatus, Status

if TYPE_CHECKING:
    from slurm_jobs.reconcile import StageStatus

NOT_NEEDED = "not needed"
_WENT_WRONG: frozenset[Status] = frozenset({"failed", "cancelled", "stranded"})


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitedJobs:
    """Jobs of the parent stages that a slice's newest job can have waited for.

    A command submits each stage after its parents. So whatever was submitted before the slice's
    previous job belongs to an earlier command, and its completed part is not waited for any more.
    """

    numbers: Mapping[str, Mapping[int, int]]
    """Number of the newest intent, by stage and slice."""
    earlier: Mapping[int, int]
    """Number of the intent before the newest, by slice of the waiting stage."""

    def of_parent(self, parent: StageStatus, since: int) -> list[SliceStatus]:
        """Return the parent's slices whose newest job was submitted after the intent `since`."""
        numbers = self.numbers[parent.stage.name]
        return [part for part in parent.slices if numbers.get(part.slice_index, 0) > since]


def stage_cause(after: Mapping[str, str], parents: Mapping[str, StageStatus]) -> str | None:
    """Return why a stage can never start, named by the stage that caused it.

    A parent that can never start is taken away, by which `afterany` and `afternotok` are met,
    unless the scheduler leaves it in the queue.

    Args:
        after: kind of dependency by parent.
        parents: all stages before this one.
    """
    for parent, kind in after.items():
        above = parents[parent]
        if kind == "afternotok" and above.status == "completed":
            return f"{NOT_NEEDED}: `{parent}` completed"
        is_met = kind != "afterok" and (above.is_not_needed or not above.is_stuck)
        if kind == "aftercorr" or is_met:
            continue
        waits = above.counts["running"] or above.counts["waiting"]
        if above.status == "stranded" or (above.is_stuck and not waits):
            return (
                _stuck_cause(f"`{parent}`", above.slices)
                or above.reason
                or f"`{parent}` can never start"
            )
        if kind != "afterok":
            continue
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` {above.status}"
        if above.counts["failed"] or above.counts["cancelled"]:
            return f"`{parent}` has slices that failed or were cancelled"
    return None


def with_causes(
    slices: tuple[SliceStatus, ...],
    after: Mapping[str, str],
    parents: Mapping[str, StageStatus],
    cause: str | None,
    jobs: AwaitedJobs,
    *,
    is_silent: bool,
) -> tuple[SliceStatus, ...]:
    """Mark slices as stranded that wait for something impossible, or were removed for that reason.

    Args:
        slices: slices of a stage.
        after: kind of dependency by parent.
        parents: all stages before this one.
        cause: cause for the whole stage.
        jobs: jobs of the parents that can explain removed jobs.
        is_silent: no source reports which jobs are alive.
    """
    lost: dict[int, str | None] = {}  # the same for all slices of a job

    def why(part: SliceStatus) -> str | None:
        is_taken_away = _is_taken_away(part, is_silent=is_silent)
        waits = part.status == "stranded" or (part.status == "waiting" and part.job_id is not None)
        if not (waits or is_taken_away):
            return None
        own = cause or _element_cause(part, after, parents)
        if own is not None or not is_taken_away:
            return own
        since = jobs.earlier.get(part.slice_index, 0)
        if since not in lost:
            lost[since] = _lost_cause(after, parents, jobs, since)
        return lost[since]

    found = [(part, why(part)) for part in slices]
    return tuple(
        part if reason is None else replace(part, status="stranded", reason=reason, wait="")
        for part, reason in found
    )


def _is_taken_away(part: SliceStatus, *, is_silent: bool) -> bool:
    """Check whether a job may have ended because it could never start.

    Slurm removes such jobs with `--kill-on-invalid-dep=yes`; without accounting it forgets them
    after some minutes.
    """
    is_forgotten = part.status == "unknown" and part.job_id is not None and not is_silent
    return not part.attempt and (part.reason == CANCELLED_ELSEWHERE or is_forgotten)


def _element_cause(
    part: SliceStatus, after: Mapping[str, str], parents: Mapping[str, StageStatus]
) -> str | None:
    """Return why this slice alone can never start: its element in a parent stage (`aftercorr`)."""
    for parent, kind in after.items():
        if kind != "aftercorr":
            continue
        above = parents[parent].slices[part.slice_index]
        if above.status == "stranded":
            return _stuck_cause(f"`{parent}` slice {above.slice_index}", [above]) or above.reason
        if above.status in {"failed", "cancelled"}:
            return f"`{parent}` slice {above.slice_index} {above.status}"
    return None


def is_stuck_itself(slices: Iterable[SliceStatus]) -> bool:
    """Check whether a job is in the queue that is held, or over a limit."""
    return any(s.status == "stranded" and s.wait and s.reason != NEVER for s in slices)


def _stuck_cause(parent: str, slices: Iterable[SliceStatus]) -> str | None:
    """Return `` `count` is held (JobHeldUser) `` where a job of the parent's does not start."""
    stuck = [s for s in slices if is_stuck_itself([s])]
    if not stuck:
        return None
    is_held = stuck[0].wait in {"held", "held_by_admin"}
    return f"{parent} {'is ' if is_held else ''}{stuck[0].reason}"


def _lost_cause(
    after: Mapping[str, str], parents: Mapping[str, StageStatus], jobs: AwaitedJobs, since: int
) -> str | None:
    """Return why Slurm ended jobs that never started, if neither stage nor element explains it.

    Where array elements do not correspond, `aftercorr` waits for all of the other stage. And the
    scheduler may have lost a node after the last record was written. A parent's job that no such
    job waited for explains nothing: then a person ended the job.
    """
    for parent, kind in after.items():
        if kind not in {"afterok", "aftercorr"}:
            continue
        awaited = jobs.of_parent(parents[parent], since)
        if any(part.status in _WENT_WRONG for part in awaited):
            return f"`{parent}` has slices that failed or were cancelled"
        ended = {part.state for part in awaited} - LIVING_STATES - {None, "COMPLETED"}
        if parents[parent].status == "completed" and ended:
            return NEVER
    return None
