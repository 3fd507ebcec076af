"""Decision before a resume: complete slices, continuing jobs, jobs to cancel. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from slurm_jobs.dependencies import Slices, barred_slices, corresponds
from slurm_jobs.plan import Done
from slurm_jobs.reconcile import (
    RunStatus,
    SliceStatus,
    StageStatus,
    completed_slices,
)
from slurm_jobs.run.connections import Connections
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.model import RunRecords
from slurm_jobs.run.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.schedulers.states import LIVING_STATES
from slurm_jobs.troubles import Trouble


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """Starting point of a resume."""

    done: Done
    connections: Connections
    cancel: tuple[str, ...]
    """Jobs and array elements to cancel; the scheduler has just reported all of them as alive."""
    taken_away: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that no earlier job may continue, alive or forgotten, by the token of its intent."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """Job ids that were recovered, by stage."""
    damaged: Mapping[str, Slices] = field(default_factory=dict)
    """Slices whose output no longer matches their completion record, by stage."""
    problems: tuple[str, ...] = ()
    """Sources that failed; facts that only they have are treated as unknown."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """Causes of failed slices, by stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _SortedStage:
    """Outcome for one stage's slices and jobs."""

    completed: Slices
    live: Slices
    active: Mapping[str, Slices]
    ending: tuple[str, ...]
    """Slices whose jobs may be running, or start before they are cancelled."""
    cancel: tuple[str, ...]
    taken_away: Mapping[str, Slices]


def sort_out(
    run: RunRecords,
    status: RunStatus,
    fingerprints: Mapping[str, str],
    void: Mapping[str, Slices] | None = None,
    *,
    living: Collection[str] = (),
    afters: Mapping[str, Mapping[str, str]] | None = None,
) -> Preparation:
    """Return which slices are complete, which continue, and which jobs must be cancelled. PURE.

    `void` slices run again, complete or running: they have lost output, or the user requests it.
    `living` are the ids of all queued or running jobs and elements. `afters` are the current kinds
    of dependency, by stage and parent, where they differ.
    """
    found: dict[str, _SortedStage] = {}
    again: dict[str, Slices] = {}
    ages: dict[str, Ages] = {}
    for stage in status.stages:
        name, num_slices = stage.stage.name, stage.stage.num_slices
        after = (afters or {}).get(name, stage.stage.after)
        barred = barred_slices(after, again, num_slices)
        newest = latest_intents(run.intents, name)
        unwanted = (void or {}).get(name, frozenset()) | outdated_slices(after, newest, ages)
        current = _current(newest, fingerprints.get(name), unwanted)
        completed = completed_slices(run.records[name], current)
        found[name] = _sort_stage(
            stage,
            newest=newest,
            current=current,
            completed=completed,
            older=_older_living(run.intents, name, newest, living),
            barred=barred | _waiting_for_all(stage, newest, run.intents, again),
        )
        own = {} if stage.is_not_needed else newest
        ages[name] = ages_of(after, own, ages, num_slices)
        missing = frozenset(range(num_slices)) - found[name].live - (completed - barred)
        again[name] = barred if stage.is_not_needed else missing
    return _gathered(found)


def _current(
    newest: Mapping[int, Intent], fingerprint: str | None, unwanted: Slices
) -> dict[int, Intent]:
    """Return the intents whose work matches the stage's current fingerprint."""
    return {
        i: intent
        for i, intent in newest.items()
        if intent.fingerprint == fingerprint and i not in unwanted
    }


def _waiting_for_all(
    stage: StageStatus,
    newest: Mapping[int, Intent],
    intents: Iterable[Intent],
    again: Mapping[str, Slices],
) -> Slices:
    """Return slices in jobs that wait for a whole stage of which something runs again.

    The spec asks for slice after slice, but the two arrays had different elements. A job with a
    started slice no longer waits.
    """
    waiting = _with_status(stage.slices, {"waiting", "stranded"})
    found: Slices = frozenset()
    for parent, kind in stage.stage.after.items():
        if kind != "aftercorr" or not again.get(parent):
            continue
        above = latest_intents(intents, parent)
        for own in {id(intent): intent for intent in newest.values()}.values():
            still_own = [i for i in own.slices if newest.get(i) is own]
            others = {id(above[i]): above[i] for i in still_own if i in above}.values()
            waits = waiting.issuperset(still_own)
            if waits and not all(_side_by_side(own, other) for other in others):
                found |= frozenset(still_own)
    return found


def _side_by_side(own: Intent, other: Intent) -> bool:
    return corresponds(own.slices, own.slices_per_task, other.slices, other.slices_per_task)


def _gathered(found: Mapping[str, _SortedStage]) -> Preparation:
    return Preparation(
        done=Done(
            completed={name: part.completed for name, part in found.items()},
            active={name: part.live for name, part in found.items()},
        ),
        connections=Connections(
            active={name: part.active for name, part in found.items()},
            ending={name: part.ending for name, part in found.items()},
        ),
        cancel=tuple(job_id for part in found.values() for job_id in part.cancel),
        taken_away={t: s for part in found.values() for t, s in part.taken_away.items()},
    )


def _sort_stage(
    stage: StageStatus,
    *,
    newest: Mapping[int, Intent],
    current: Mapping[int, Intent],
    completed: Slices,
    older: tuple[str, ...],
    barred: Slices,
) -> _SortedStage:
    live = frozenset(
        s.slice_index
        for s in stage.slices
        if s.slice_index in current and s.slice_index not in barred and _goes_on(s, newest)
    )
    doomed = _must_make_way(stage.slices) - live
    # An element with several slices ends with all of them. If one has failed, the element will end
    # as failed, and jobs that depend on it would never start.
    lost = _with_status(stage.slices, {"failed", "cancelled", "unknown"}) & frozenset(current)
    elements = {newest[index].element_id(index) for index in doomed | lost}
    live = frozenset(i for i in live if newest[i].element_id(i) not in elements)
    doomed = _must_make_way(stage.slices) - live
    return _SortedStage(
        completed=completed,
        live=live,
        active=_ids(live, newest),
        ending=(*_ids(doomed & _with_status(stage.slices, {"running", "waiting"}), newest), *older),
        cancel=(*_ids(doomed & _said_to_live(stage.slices), newest), *older),
        taken_away=_by_token(doomed, newest),
    )


def _by_token(slices: Slices, newest: Mapping[int, Intent]) -> dict[str, Slices]:
    found: dict[str, Slices] = {}
    for index in sorted(slices):
        token = newest[index].token
        found[token] = found.get(token, frozenset()) | {index}
    return found


def _older_living(
    intents: Iterable[Intent], stage: str, newest: Mapping[int, Intent], living: Collection[str]
) -> tuple[str, ...]:
    """Return living elements of a stage's earlier intents whose slices newer intents have."""
    elements = (
        intent.element_id(index)
        for intent in intents
        if intent.stage == stage
        for index in intent.slices
        if all(newest[i] is not intent for i in intent.slices_beside(index))
    )
    return tuple(dict.fromkeys(e for e in elements if e is not None and e in living))


def _goes_on(part: SliceStatus, newest: Mapping[int, Intent]) -> bool:
    """Check whether a slice is running or queued, and not cancelled."""
    index = part.slice_index
    if part.job_id is None or index in newest[index].cancelled_slices:
        return False
    return part.status in {"running", "waiting"}


def _with_status(slices: tuple[SliceStatus, ...], words: set[str]) -> frozenset[int]:
    return frozenset(s.slice_index for s in slices if s.job_id is not None and s.status in words)


def _must_make_way(slices: tuple[SliceStatus, ...]) -> Slices:
    """Return running and queued slices, whether or not they can ever start."""
    words = {"running", "waiting", "stranded"}
    return _with_status(slices, words) & {s.slice_index for s in slices if s.may_live}


def _said_to_live(slices: tuple[SliceStatus, ...]) -> Slices:
    """Return slices without those that Slurm has forgotten: another job may have their id."""
    return frozenset(s.slice_index for s in slices if s.state in LIVING_STATES)


def _ids(chosen: Slices, newest: Mapping[int, Intent]) -> dict[str, Slices]:
    """Return ids of the chosen slices: the job's id if all its slices are chosen, else elements."""
    ids: dict[str, Slices] = {}
    for index in sorted(chosen):
        intent = newest[index]
        whole = all(i in chosen and newest.get(i) is intent for i in intent.slices)
        job_id = intent.job_id if whole else intent.element_id(index)
        assert job_id is not None
        ids[job_id] = ids.get(job_id, frozenset()) | {index}
    return ids
