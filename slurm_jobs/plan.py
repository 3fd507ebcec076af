"""(spec, profile, what is complete, what is active) -> the jobs that are needed. PURE.

A submit plans with nothing complete; a resume is the same function with more
done, hence a smaller plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.records import DependencyKind
from slurm_jobs.common.resources import JobResources
from slurm_jobs.spec.graph import stage_order
from slurm_jobs.spec.model import RunSpec, Stage

Slices = frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """A job comes after all jobs of a stage."""

    stage: str
    kind: DependencyKind


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStage:
    """A stage as the jobs see it, whether or not it runs in this plan."""

    name: str
    run: str
    """Built-in name, entry point, or `shell`."""
    shell: str | None
    fingerprint: str
    """Of everything that decides what the stage makes; resources are not part of it."""
    num_slices: int
    is_array: bool
    retries: int
    after: tuple[Dependency, ...]
    config: Mapping[str, Any]
    python: str | None
    setup: tuple[str, ...]
    environment: Mapping[str, str]
    node_local_dir: str
    resources: JobResources


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """One job to submit."""

    stage: str
    slices: tuple[int, ...]
    """Ascending; (0,) for a stage without an array."""
    max_running: int | None
    after_active: bool = False
    """Wait for what still runs of the same stage: together they would exceed `max_running`."""
    why: str
    """One line for `plan` and `resume`: why it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The stages in order, and the jobs that are to be submitted, in order."""

    name: str
    stages: tuple[PlannedStage, ...]
    jobs: tuple[PlannedJob, ...]

    def stage(self, name: str) -> PlannedStage:
        """The stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What need not be submitted."""

    completed: Mapping[str, Slices] = field(default_factory=dict)
    """Slices whose output and completion record exist, by stage."""
    active: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that are queued or running and may stay so, by stage."""


def make_plan(
    spec: RunSpec,
    profile: ClusterProfile,
    *,
    code_fingerprint: str = "",
    done: Done | None = None,
) -> Plan:
    """The jobs that turn `spec` into results, given what is done already."""
    done = done or Done()
    order = stage_order({name: tuple(stage.after) for name, stage in spec.stages.items()})
    fingerprints: dict[str, str] = {}
    stages = []
    for name in order:
        stage = spec.stages[name]
        fingerprints[name] = stage_fingerprint(stage, spec, fingerprints, code_fingerprint)
        stages.append(_planned_stage(name, stage, spec, profile, fingerprints[name]))
    jobs = _jobs(stages, spec, done)
    return Plan(name=spec.name, stages=tuple(stages), jobs=jobs)


def stage_fingerprint(
    stage: Stage, spec: RunSpec, parents: Mapping[str, str], code_fingerprint: str
) -> str:
    """Hash of all that decides a stage's output; equal fingerprints make finished work reusable."""
    own_code = stage.run is None or ":" in stage.run
    values = {
        "run": stage.run,
        "shell": stage.shell,
        "config": stage.config,
        "num_slices": stage.array.num_slices if stage.array else None,
        "limit": spec.limit,
        "environment": {**spec.environment, **stage.environment},
        "code": code_fingerprint if own_code else "",
        "parents": {parent: parents[parent] for parent in sorted(stage.after)},
    }
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _planned_stage(
    name: str, stage: Stage, spec: RunSpec, profile: ClusterProfile, fingerprint: str
) -> PlannedStage:
    asked = stage.resources
    gpu_options = profile.gpu_slurm if asked.gpus_per_node else {}
    resources = JobResources(
        nodes=asked.nodes,
        tasks_per_node=asked.tasks_per_node,
        cpus_per_task=asked.cpus_per_task,
        gpus_per_node=asked.gpus_per_node,
        gpu=tuple(asked.gpu),
        mem_gb=asked.mem_gb,
        timeout_min=asked.timeout_min,
        signal_lead_s=asked.signal_lead_s,
        slurm={**profile.slurm, **gpu_options, **asked.slurm},
    )
    return PlannedStage(
        name=name,
        run=stage.run or "shell",
        shell=stage.shell,
        fingerprint=fingerprint,
        num_slices=stage.array.num_slices if stage.array else 1,
        is_array=stage.array is not None,
        retries=stage.retries,
        after=tuple(Dependency(stage=p, kind=k) for p, k in stage.after.items()),
        config=stage.config,
        python=stage.python or profile.python,
        setup=(*profile.setup, *spec.setup, *stage.setup),
        environment={**profile.environment, **spec.environment, **stage.environment},
        node_local_dir=stage.node_local_dir or profile.node_local_dir,
        resources=resources,
    )


def _jobs(stages: list[PlannedStage], spec: RunSpec, done: Done) -> tuple[PlannedJob, ...]:
    jobs: list[PlannedJob] = []
    runs_again: set[str] = set()
    num_slices = {stage.name: stage.num_slices for stage in stages}
    for stage in stages:
        parents_again = [d.stage for d in stage.after if d.stage in runs_again]
        active = done.active.get(stage.name, frozenset())
        completed = frozenset() if parents_again else done.completed.get(stage.name, frozenset())
        missing = [i for i in range(stage.num_slices) if i not in completed and i not in active]
        if not missing or _never_needed(stage, done, runs_again, num_slices):
            continue
        runs_again.add(stage.name)
        array = spec.stages[stage.name].array
        max_running = array.max_running if array else None
        room = None if max_running is None else max_running - len(active)
        jobs.append(
            PlannedJob(
                stage=stage.name,
                slices=tuple(missing),
                max_running=room if room is None or room > 0 else max_running,
                after_active=room is not None and room <= 0,
                why=_why(stage, missing, parents_again),
            )
        )
    return tuple(jobs)


def _never_needed(
    stage: PlannedStage, done: Done, runs_again: set[str], num_slices: Mapping[str, int]
) -> bool:
    """`afternotok` of a stage that is complete and stays so."""
    for dependency in stage.after:
        if dependency.kind != "afternotok" or dependency.stage in runs_again:
            continue
        if len(done.completed.get(dependency.stage, ())) == num_slices[dependency.stage]:
            return True
    return False


def _why(stage: PlannedStage, missing: list[int], parents_again: list[str]) -> str:
    if parents_again:
        return f"comes after {', '.join(parents_again)}"
    if len(missing) == stage.num_slices:
        return "not complete"
    return f"{len(missing)} of {stage.num_slices} slices are not complete"


def gpu_hours_asked(plan: Plan, job: PlannedJob) -> float:
    """GPU-hours that a job may use until its time limit, over all its array tasks."""
    resources = plan.stage(job.stage).resources
    gpus = resources.nodes * resources.gpus_per_node
    return gpus * len(job.slices) * resources.timeout_min / 60
