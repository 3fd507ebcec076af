"""Planning: (spec, profile, complete slices, active slices) -> the jobs that are needed. PURE.

A submit plans with nothing complete. A resume is the same function with more work done, hence a
smaller plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.cluster.placement import job_room
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.resources import JobResources, gpus_of_options
from slurm_jobs.dependencies import Dependency, Slices, stage_dependencies
from slurm_jobs.fingerprints import deciding_fields, hash_of
from slurm_jobs.missing import Missing, missing_parts
from slurm_jobs.pieces import by_kind, cut_slices, pack_for
from slurm_jobs.run.elements import array_indices
from slurm_jobs.spec.graph import stage_order
from slurm_jobs.spec.matrices.matrix_names import matrix_variables, origin_of
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.value_types import SlurmValue


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStage:
    """Stage as the jobs see it, including stages that do not run in this plan."""

    name: str
    origin: str
    """Name in the file, for a combination of a matrix; otherwise empty."""
    run: str
    """Built-in name, entry point, or `shell`."""
    shell: str | None
    fingerprint: str
    """Hash of everything that determines the stage's output; resources are not part of it."""
    fields: Mapping[str, str]
    """Hash of each value in the fingerprint, by key (`config.url`); values may be secrets."""
    num_slices: int
    is_array: bool
    slices_per_task: int
    """Number in the spec; a plan may pack more."""
    retries: int
    after: tuple[Dependency, ...]
    config: Mapping[str, Any]
    python: str | None
    setup: tuple[str, ...]
    environment: Mapping[str, str]
    node_local_dir: str
    resources: JobResources
    nsight: bool = False
    """True if its ranks run under nsys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """Job to submit."""

    stage: str
    slices: tuple[int, ...]
    """Ascending; (0,) for a stage without an array."""
    slices_per_task: int | None = None
    """Set for an array whose elements process several slices; see `slurm_jobs.run.elements`."""
    resources: JobResources
    max_running: int | None
    after_active: bool = False
    """Wait for active jobs of the same stage: together they would exceed `max_running`."""
    after_previous: bool = False
    """Wait for the previous job of the same stage, for the same reason."""
    why: str
    """Reason in one line, for `plan` and `resume`."""

    @property
    def num_tasks(self) -> int:
        """Number of array elements; 1 without an array."""
        return len(array_indices(self.slices, self.slices_per_task))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Stages in order, and the jobs to submit, in order."""

    name: str
    stages: tuple[PlannedStage, ...]
    jobs: tuple[PlannedJob, ...]

    def stage(self, name: str) -> PlannedStage:
        """Return the stage of that name.

        Raises:
            KeyError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Work that need not be submitted."""

    completed: Mapping[str, Slices] = field(default_factory=dict)
    """Slices with output and completion record, by stage."""
    active: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that are queued or running and may stay so, by stage."""
    why_not: Mapping[str, str] = field(default_factory=dict)
    """Reason why finished work of a stage does not count, by stage."""


def make_plan(
    spec: RunSpec,
    profile: ClusterProfile,
    *,
    code_fingerprint: str = "",
    done: Done | None = None,
    limits: ClusterLimits = NO_LIMITS,
    resources: Mapping[str, JobResources] | None = None,
    kinds: Mapping[str, Mapping[int, str]] | None = None,
) -> Plan:
    """Return the jobs that complete `spec`, given the finished work and the limits.

    `resources` replace those of the spec, by stage. `kinds` are the types of GPU that slices are
    bound to, by stage and slice: slices of one stage with different types get separate jobs.
    """
    done = done or Done()
    order = stage_order({name: tuple(stage.after) for name, stage in spec.stages.items()})
    fingerprints: dict[str, str] = {}
    stages = []
    for name in order:
        stage = spec.stages[name]
        fields = deciding_fields(stage, spec, fingerprints, code_fingerprint)
        fingerprints[name] = hash_of(fields)
        planned = _planned_stage(name, stage, spec, profile, fields=fields)
        other = (resources or {}).get(name)
        stages.append(planned if other is None else replace(planned, resources=other))
    missing = missing_parts(stages, spec, done)
    return Plan(name=spec.name, stages=tuple(stages), jobs=_jobs(missing, limits, kinds or {}))


def _planned_stage(
    name: str, stage: Stage, spec: RunSpec, profile: ClusterProfile, *, fields: Mapping[str, str]
) -> PlannedStage:
    asked = stage.resources
    options = options_of(stage, profile)
    resources = JobResources(
        nodes=asked.nodes,
        tasks_per_node=asked.tasks_per_node,
        cpus_per_task=asked.cpus_per_task,
        gpus_per_node=asked.gpus_per_node,
        gpu=tuple(asked.gpu),
        mem_gb=asked.mem_gb,
        timeout_min=asked.timeout_min,
        signal_lead_s=asked.signal_lead_s,
        slurm=options,
    )
    return PlannedStage(
        name=name,
        origin=origin_of(name, stage.matrix),
        run=stage.run or "shell",
        shell=stage.shell,
        fingerprint=hash_of(fields),
        fields=fields,
        num_slices=stage.array.num_slices if stage.array else 1,
        is_array=stage.array is not None,
        slices_per_task=stage.array.slices_per_task if stage.array else 1,
        retries=stage.retries,
        after=stage_dependencies(name, spec),
        config=stage.config,
        python=stage.python or profile.python,
        setup=(*profile.setup, *spec.setup, *stage.setup),
        environment=_environment(stage, spec, profile),
        node_local_dir=stage.node_local_dir or profile.node_local_dir,
        resources=resources,
        nsight=stage.nsight,
    )


def options_of(stage: Stage, profile: ClusterProfile) -> dict[str, SlurmValue]:
    """Return the stage's sbatch options together with those of the profile that apply to it."""
    asked = stage.resources
    own = {**profile.slurm, **asked.slurm}
    asks_for_gpus = asked.gpus_per_node or gpus_of_options(own, asked.tasks_per_node)
    return {**profile.slurm, **(profile.gpu_slurm if asks_for_gpus else {}), **asked.slurm}


def _environment(stage: Stage, spec: RunSpec, profile: ClusterProfile) -> Mapping[str, str]:
    """Return the stage's environment; the stage overrides the spec, the spec the profile."""
    own = {**stage.environment, **matrix_variables(stage.matrix)}
    return {**profile.environment, **spec.environment, **own}


def _jobs(
    parts: list[Missing], limits: ClusterLimits, kinds: Mapping[str, Mapping[int, str]]
) -> tuple[PlannedJob, ...]:
    """Return the jobs: packed where the site allows few at once, cut where arrays are limited."""
    alike = {p.stage.name: by_kind(p.slices, kinds.get(p.stage.name, {})) for p in parts}
    packed = pack_for(
        {name: [len(slices) for slices in found.values()] for name, found in alike.items()},
        {part.stage.name: part.stage.slices_per_task for part in parts},
        job_room([part.stage.resources for part in parts], limits),
    )
    return tuple(
        job
        for part in parts
        for job in _jobs_of(
            part, alike[part.stage.name], packed[part.stage.name], limits.max_array_size
        )
    )


def _jobs_of(
    part: Missing,
    alike: Mapping[str, Sequence[int]],
    slices_per_task: int,
    max_array_size: int | None,
) -> list[PlannedJob]:
    stage, resources = part.stage, part.stage.resources
    if stage.is_array and slices_per_task > 1:
        resources = replace(resources, timeout_min=resources.timeout_min * slices_per_task)
    pieces = cut_slices(
        alike,
        slices_per_task=slices_per_task if stage.is_array else 1,
        max_running=part.max_running,
        max_array_size=max_array_size if stage.is_array else None,
    )
    return [
        PlannedJob(
            stage=stage.name,
            slices=piece.slices,
            slices_per_task=piece.slices_per_task,
            resources=replace(resources, gpu_kept=piece.gpu_kept),
            max_running=piece.max_running,
            after_active=part.after_active,
            after_previous=piece.after_previous,
            why=part.why,
        )
        for piece in pieces
    ]


def gpu_hours_asked(job: PlannedJob) -> float:
    """Return the GPU-hours that a job may use until its time limit, over all its array tasks."""
    gpus = job.resources.nodes * job.resources.num_gpus
    return gpus * job.num_tasks * job.resources.timeout_min / 60
