"""Dependencies of new jobs on jobs that were submitted earlier. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_jobs.common.records import DependencyKind
from slurm_jobs.dependencies import Dependency, Slices, corresponds, not_side_by_side
from slurm_jobs.plan import Plan, PlannedJob
from slurm_jobs.schedulers.protocol import JobDependencies


@dataclass(frozen=True, kw_only=True, slots=True)
class Connections:
    """Earlier jobs that new jobs depend on."""

    active: Mapping[str, Mapping[str, Slices]] = field(default_factory=dict)
    """Jobs that continue unchanged; later stages wait for them. Ids of jobs or array elements by
    stage, each with the slices that it works on."""
    ending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Jobs that were cancelled and have not ended; new jobs of the same stage wait for their end.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmittedJob:
    """Job that the scheduler accepted."""

    planned: PlannedJob
    token: str
    job_id: str

    @property
    def stage(self) -> str:
        """Return the name of the job's stage."""
        return self.planned.stage

    @property
    def num_tasks(self) -> int:
        """Return the number of array elements; 1 without an array."""
        return self.planned.num_tasks


def job_dependencies(
    plan: Plan, job: PlannedJob, submitted: Sequence[SubmittedJob], connections: Connections
) -> JobDependencies:
    """Return the ids that a job depends on; completed parents are left out."""
    dependencies: dict[DependencyKind, list[str]] = {}
    for dependency in plan.stage(job.stage).after:
        for kind, job_id in _on(dependency, job, submitted, connections):
            dependencies.setdefault(kind, []).append(job_id)
    before = list(connections.ending.get(job.stage, ()))
    if job.after_active:
        before += connections.active.get(job.stage, ())
    if job.after_previous:
        before += [done.job_id for done in submitted if done.stage == job.stage][-1:]
    if before:
        dependencies.setdefault("afterany", []).extend(before)
    return dependencies


def _on(
    dependency: Dependency,
    job: PlannedJob,
    submitted: Sequence[SubmittedJob],
    connections: Connections,
) -> list[tuple[DependencyKind, str]]:
    """Return kinds and ids of the jobs that one dependency stands for."""
    above = [done for done in submitted if done.stage == dependency.stage]
    active = connections.active.get(dependency.stage, {})
    if dependency.kind != "aftercorr":
        return [(dependency.kind, i) for i in [*(done.job_id for done in above), *active]]
    own = frozenset(job.slices)
    kinds: list[tuple[DependencyKind, str]] = [
        ("aftercorr" if side_by_side(job, done.planned) else "afterok", done.job_id)
        for done in above
        if own.intersection(done.planned.slices)
    ]
    return [*kinds, *(("afterok", i) for i, slices in active.items() if own & slices)]


def side_by_side(job: PlannedJob, parent: PlannedJob) -> bool:
    """Check whether each element can wait for the parent's element with the same number."""
    return corresponds(job.slices, job.slices_per_task, parent.slices, parent.slices_per_task)


def dependency_notes(plan: Plan, connections: Connections = Connections()) -> tuple[str, ...]:
    """Return notes on plans that wait for a whole stage although the spec asks for each slice."""
    notes = [d.instead for stage in plan.stages for d in stage.after if d.instead]
    for job in plan.jobs:
        above = [d.stage for d in plan.stage(job.stage).after if d.kind == "aftercorr"]
        notes += [
            not_side_by_side(job.stage, other.stage)
            for other in plan.jobs
            if other.stage in above
            and not frozenset(job.slices).isdisjoint(other.slices)
            and not side_by_side(job, other)
        ]
        notes += [
            f"`{job.stage}` waits for all of `{name}` that runs now (afterok instead of aftercorr)"
            for name in above
            for slices in connections.active.get(name, {}).values()
            if not slices.isdisjoint(job.slices)
        ]
    return tuple(dict.fromkeys(notes))
