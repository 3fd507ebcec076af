"""Planning: (spec, profile, complete slices, active slices) -> the jobs that are needed. PURE.

A submit plans with nothing complete. A resume is the same function with more work done, hence a
smaller plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_jobs.cluster.allowed_partitions import job_room
from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.formats.records.job_resources import JobResources, gpus_of_options
from slurm_jobs.plan.array_pieces import by_request, cut_slices, pack_for
from slurm_jobs.plan.fingerprints import deciding_fields, hash_of
from slurm_jobs.plan.missing_work import Missing, missing_parts, reasons_text
from slurm_jobs.plan.planned import Done, Plan, PlannedJob, PlannedStage, SliceRequest
from slurm_jobs.plan.stage_dependencies import stage_dependencies
from slurm_jobs.spec.combinations import matrix_variables, origin_of
from slurm_jobs.spec.graph import stage_order
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.value_types import SlurmValue


def make_plan(
    spec: RunSpec,
    profile: ClusterProfile,
    *,
    code_fingerprint: str = "",
    kept_code: Mapping[str, str] | None = None,
    done: Done | None = None,
    limits: ClusterLimits = NO_LIMITS,
    resources: Mapping[str, JobResources] | None = None,
    requests: Mapping[str, Mapping[int, SliceRequest]] | None = None,
) -> Plan:
    """Return the jobs that complete `spec`, given the finished work and the limits.

    `kept_code` has the earlier value of the field `code` of stages for which nothing has changed.
    `resources` replace those of the spec, by stage. `requests` are those of single
    slices, by stage: slices of one stage with different requests get separate jobs.
    """
    done = done or Done()
    order = stage_order({name: tuple(stage.after) for name, stage in spec.stages.items()})
    fingerprints: dict[str, str] = {}
    stages = []
    for name in order:
        stage = spec.stages[name]
        fields = {
            **deciding_fields(stage, spec, fingerprints, code_fingerprint),
            **({"code": kept_code[name]} if kept_code and name in kept_code else {}),
        }
        fingerprints[name] = hash_of(fields)
        planned = _planned_stage(name, stage, spec, profile, fields=fields)
        other = (resources or {}).get(name)
        stages.append(planned if other is None else replace(planned, resources=other))
    missing = missing_parts(stages, spec, done)
    return Plan(name=spec.name, stages=tuple(stages), jobs=_jobs(missing, limits, requests or {}))


def _planned_stage(
    name: str, stage: Stage, spec: RunSpec, profile: ClusterProfile, *, fields: Mapping[str, str]
) -> PlannedStage:
    resources = stage.resources
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
        environment={
            **profile.environment,
            **spec.environment,
            **stage.environment,
            **matrix_variables(stage.matrix),
        },
        node_local_dir=stage.node_local_dir or profile.node_local_dir,
        resources=JobResources(
            nodes=resources.nodes,
            tasks_per_node=resources.tasks_per_node,
            cpus_per_task=resources.cpus_per_task,
            gpus_per_node=resources.gpus_per_node,
            gpu=tuple(resources.gpu),
            mem_gb=resources.mem_gb,
            timeout_min=resources.timeout_min,
            signal_lead_s=resources.signal_lead_s,
            slurm=options_of(stage, profile),
        ),
        nsight=stage.nsight,
    )


def options_of(stage: Stage, profile: ClusterProfile) -> dict[str, SlurmValue]:
    """Return the stage's sbatch options together with those of the profile that apply to it."""
    resources = stage.resources
    options = {**profile.slurm, **resources.slurm}
    asks_for_gpus = resources.gpus_per_node or gpus_of_options(options, resources.tasks_per_node)
    return {**profile.slurm, **(profile.gpu_slurm if asks_for_gpus else {}), **resources.slurm}


def _jobs(
    parts: list[Missing],
    limits: ClusterLimits,
    requests: Mapping[str, Mapping[int, SliceRequest]],
) -> tuple[PlannedJob, ...]:
    """Return the jobs: packed where the site allows few at once, cut where arrays are limited."""
    alike = {p.stage.name: by_request(p.slices, requests.get(p.stage.name, {})) for p in parts}
    packed = pack_for(
        {name: [len(slices) for slices in groups.values()] for name, groups in alike.items()},
        {part.stage.name: part.stage.slices_per_task for part in parts},
        job_room([part.stage.resources for part in parts], limits),
    )
    jobs: list[PlannedJob] = []
    for part in parts:
        stage = part.stage
        slices_per_task = packed[stage.name] if stage.is_array else 1
        pieces = cut_slices(
            alike[stage.name],
            slices_per_task=slices_per_task,
            max_running=part.max_running,
            max_array_size=limits.max_array_size if stage.is_array else None,
        )
        for piece in pieces:
            resources = piece.request.applied_to(stage.resources)
            # A task processes its slices one after the other.
            timeout_min = resources.timeout_min * slices_per_task
            job = PlannedJob(
                stage=stage.name,
                slices=piece.slices,
                slices_per_task=piece.slices_per_task,
                resources=replace(resources, timeout_min=timeout_min),
                max_running=piece.max_running,
                after_active=part.after_active,
                after_previous=piece.after_previous,
                why=reasons_text(part.reasons, piece.slices, stage.num_slices),
            )
            jobs.append(job)
    return tuple(jobs)


def gpu_hours_asked(job: PlannedJob) -> float:
    """Return the GPU-hours that a job may use until its time limit, over all its array tasks."""
    return job.resources.total_gpus * job.num_tasks * job.resources.timeout_min / 60
