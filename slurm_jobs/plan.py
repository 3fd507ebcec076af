"""Planning: (spec, profile, complete slices, active slices) -> the jobs that are needed. PURE.

A submit plans with nothing complete. A resume is the same function with more work done, hence a
smaller plan.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, is_dataclass, replace
from typing import Any

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.cluster.placement import job_room
from slurm_jobs.dependencies import Dependency, Slices, barred_slices, stage_dependencies
from slurm_jobs.run_folder.orders import StageWork, array_indices
from slurm_jobs.shared.files import ranges_text
from slurm_jobs.shared.records import JobResources, gpus_of_options
from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.combinations import matrix_variables, origin_of
from slurm_jobs.spec.graph import stage_order
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.model_keys import with_keys
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.value_types import BUILTIN_STAGES, SlurmValue

_ADDED_LATER = frozenset({"config.images_within", "config.evaluate.images_within"})
"""Keys that runs of an older version do not have: if missing (None), they are ignored."""

PARENT = "after."
"""Prefix of the keys that hold a parent's fingerprint."""


def deciding_fields(
    stage: Stage, spec: RunSpec, parents: Mapping[str, str], code_fingerprint: str
) -> Mapping[str, str]:
    """Return hashes of all values that determine a stage's output, by key.

    Where all are equal, finished work is reusable; else a resume names the keys that differ.
    """
    own_code = stage.run is None or ":" in stage.run
    values: dict[str, Any] = {
        "run": stage.run,
        "shell": stage.shell,
        "array.num_slices": stage.array.num_slices if stage.array else None,
        "limit": spec.limit,
        "code": code_fingerprint if own_code else "",
        **({"matrix": stage.matrix} if stage.matrix else {}),
        **_by_key("config", stage.config),
        **_by_key("environment", {**spec.environment, **stage.environment}),
        **{f"{PARENT}{parent}": parents[parent] for parent in stage.after},
    }
    decide = {k: v for k, v in values.items() if v is not None or k not in _ADDED_LATER}
    return {key: hash_of(decide[key]) for key in sorted(decide)}


def without_new_defaults(spec: RunSpec, earlier: RunSpec) -> RunSpec:
    """Return the spec of a resume without the config keys that only today's version knows.

    The spec of a run made by an older version lacks the keys that were added since. While such a
    key has its default, it must not make finished work run again.
    """
    stages = dict(spec.stages)
    for name, stage in spec.stages.items():
        before = earlier.stages.get(name)
        if before is not None and before.run == stage.run and stage.run in BUILTIN_STAGES:
            config = _without_defaults(config_class(stage.run), stage.config, before.config)
            stages[name] = stage.model_copy(update={"config": config})
    return spec.model_copy(update={"stages": stages})


def _without_defaults(target: Any, config: Any, earlier: Any) -> Any:
    """Remove keys that `earlier` lacks and that have the default of `target`, a type with keys."""
    target = with_keys(target)
    if isinstance(config, list) and isinstance(earlier, list):
        (item, *_) = typing.get_args(target) or (Any,)
        common = [_without_defaults(item, *pair) for pair in zip(config, earlier, strict=False)]
        return [*common, *config[len(common) :]]
    if not (is_dataclass(target) and isinstance(config, dict) and isinstance(earlier, dict)):
        return config
    # Without the marks of `Annotated`, `SomeKeysOf` has no defaults here.
    hints = typing.get_type_hints(target)
    return {
        key: _without_defaults(hints[key], value, earlier[key]) if key in earlier else value
        for key, value in config.items()
        if key in earlier or value != _default(target, key)
    }


def _default(target: Any, key: str) -> Any:
    """Return a field's default as it is in a spec's JSON; MISSING if it has none."""
    (field,) = (each for each in dataclasses.fields(target) if each.name == key)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default if default is MISSING else json.loads(json.dumps(default, default=asdict))


def _by_key(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings: `{"config.a.b": 1}`; an empty one keeps its key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        flat.update(_by_key(name, value) if isinstance(value, Mapping) and value else {name: value})
    return flat


def hash_of(values: Any) -> str:
    """Return a hash that is equal for equal JSON values, regardless of the order of keys."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


def changed_fields(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the keys of the stage itself (not of its parents) that differ between two `fields`."""
    keys = sorted({*before, *now})
    return [k for k in keys if not k.startswith(PARENT) and before.get(k) != now.get(k)]


def parents_of(fields: Mapping[str, str]) -> set[str]:
    """Return the parents of a stage with these `fields`."""
    return {key.removeprefix(PARENT) for key in fields if key.startswith(PARENT)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Slices to submit of one stage."""

    stage: PlannedStage
    slices: tuple[int, ...]
    max_running: int | None
    after_active: bool
    reasons: Mapping[int, str]
    """Why each of the slices runs."""


def missing_parts(stages: list[PlannedStage], spec: RunSpec, done: Done) -> list[Missing]:
    """Return the slices that are neither complete nor active, and their dependents, by stage."""
    parts: list[Missing] = []
    again: dict[str, Slices] = {}
    needless: set[str] = set()
    num_slices = {stage.name: stage.num_slices for stage in stages}
    for stage in stages:
        barred = barred_slices({d.stage: d.kind for d in stage.after}, again, stage.num_slices)
        active = done.active.get(stage.name, frozenset())
        completed = done.completed.get(stage.name, frozenset()) - barred
        missing = [i for i in range(stage.num_slices) if i not in completed and i not in active]
        if not missing:
            continue
        needs = {d.stage for d in stage.after if d.kind in {"afterok", "aftercorr"}}
        if _never_needed(stage, done, again, num_slices) or needless & needs:
            needless.add(stage.name)
            if barred:
                again[stage.name] = barred
            continue
        again[stage.name] = frozenset(missing)
        parents_again = [d.stage for d in stage.after if d.stage in again] if barred else []
        reasons = {
            index: f"comes after {', '.join(parents_again)}" if index in barred else "not complete"
            for index in missing
        }
        reasons |= {i: why for i, why in done.why_not.get(stage.name, {}).items() if i in reasons}
        array = spec.stages[stage.name].array
        max_running = array.max_running if array else None
        running = done.num_running.get(stage.name, len(active))
        room = None if max_running is None else max_running - running
        parts.append(
            Missing(
                stage=stage,
                slices=tuple(missing),
                max_running=room if room is None or room > 0 else max_running,
                after_active=room is not None and room <= 0,
                reasons=reasons,
            )
        )
    return parts


def reasons_text(reasons: Mapping[int, str], slices: Sequence[int], num_slices: int) -> str:
    """Return why the slices of a job run: one reason, or each with its slices."""
    by_reason: dict[str, list[int]] = {}
    for index in slices:
        by_reason.setdefault(reasons[index], []).append(index)
    if len(by_reason) > 1:
        return "; ".join(f"{ranges_text(own)}: {why}" for why, own in by_reason.items())
    why = next(iter(by_reason), "")  # a site without arrays has pieces without slices
    if why != "not complete" or len(slices) == num_slices:
        return why
    verb = "is" if len(slices) == 1 else "are"
    return f"{len(slices)} of {num_slices} slices {verb} not complete"


def _never_needed(
    stage: PlannedStage, done: Done, runs_again: Collection[str], num_slices: Mapping[str, int]
) -> bool:
    """Check whether a stage handles the failure of one that is complete and does not run again."""
    return any(
        dependency.kind == "afternotok"
        and dependency.stage not in runs_again
        and len(done.completed.get(dependency.stage, ())) == num_slices[dependency.stage]
        for dependency in stage.after
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceRequest:
    """Part of the request of some slices that differs from the request of their stage."""

    gpu_kept: str = ""
    """Type of GPU that they are bound to; empty for any."""
    mem_gb: float | None = None
    """Memory; None for the stage's."""
    timeout_min: float | None = None
    """Time limit of one slice; None for the stage's."""

    def applied_to(self, resources: JobResources) -> JobResources:
        """Return the resources of a stage with this request's values."""
        return replace(
            resources,
            gpu_kept=self.gpu_kept,
            mem_gb=resources.mem_gb if self.mem_gb is None else self.mem_gb,
            timeout_min=resources.timeout_min if self.timeout_min is None else self.timeout_min,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Slices of one job array, or of one job without an array."""

    slices: tuple[int, ...]
    request: SliceRequest
    """Request of all of them."""
    slices_per_task: int | None
    """Slices of each array task; see `slurm_jobs.run_folder.orders`."""
    max_running: int | None
    after_previous: bool = False
    """Wait for the previous piece: together they would exceed `max_running`."""


def by_request(
    slices: Sequence[int], requests: Mapping[int, SliceRequest]
) -> dict[SliceRequest, tuple[int, ...]]:
    """Group the slices (ascending) by their own requests; one without has an empty request."""
    groups: dict[SliceRequest, list[int]] = {}
    for index in slices:
        groups.setdefault(requests.get(index, SliceRequest()), []).append(index)
    return {request: tuple(group) for request, group in groups.items()}


def cut_slices(
    alike: Mapping[SliceRequest, Sequence[int]],
    *,
    slices_per_task: int,
    max_running: int | None,
    max_array_size: int | None,
) -> tuple[Piece, ...]:
    """Return arrays that cover the slices, each of one request and within `max_array_size`.

    Args:
        alike: the slices (ascending) by their own requests, as from `by_request`.
        slices_per_task: see `slurm_jobs.run_folder.orders`.
        max_running: elements at once, over all arrays; None: any number.
        max_array_size: limit of the site; None: none.
    """
    cut: list[tuple[SliceRequest, tuple[int, ...], int | None]] = []
    for request, slices in alike.items():
        rest = tuple(slices)
        if slices_per_task == 1:
            # Slices whose numbers fit are array indices; the others are counted from 0 in separate
            # arrays.
            by_number = tuple(i for i in rest if max_array_size is None or i < max_array_size)
            rest = rest[len(by_number) :]
            cut += [(request, by_number, None)] if by_number else []
        length = len(rest) if max_array_size is None else max_array_size * slices_per_task
        starts = range(0, len(rest), max(1, length))
        cut += [(request, rest[start : start + length], slices_per_task) for start in starts]
    shares = share_out(max_running, [len(array_indices(piece[1], piece[2])) for piece in cut])
    return tuple(
        Piece(
            slices=chosen,
            request=request,
            slices_per_task=packed,
            max_running=share if share is not None else max_running,
            after_previous=share is None and max_running is not None and number > 0,
        )
        for number, ((request, chosen, packed), share) in enumerate(zip(cut, shares, strict=True))
    )


def share_out(max_running: int | None, num_tasks: Sequence[int]) -> list[int | None]:
    """Divide `max_running` among arrays that run at the same time, given the tasks of each.

    Slurm throttles each array separately. Each may run one task, and the rest of `max_running` is
    in proportion to their other tasks, so that all end at about the same time. If there are more
    arrays than `max_running`, each gets None, and they must run one after the other.
    """
    num_arrays = len(num_tasks)
    if max_running is None or max_running < num_arrays:
        return [None] * num_arrays
    weights = [number - 1 for number in num_tasks] if max(num_tasks) > 1 else [1] * num_arrays
    wholes, rests = [], []
    for weight in weights:
        whole, rest = divmod((max_running - num_arrays) * weight, sum(weights))
        wholes.append(1 + whole)
        rests.append(rest)
    by_rest = sorted(range(num_arrays), key=lambda number: -rests[number])
    rounded_up = by_rest[: max_running - sum(wholes)]
    return [whole + (number in rounded_up) for number, whole in enumerate(wholes)]


def pack_for(
    num_missing: Mapping[str, Sequence[int]], given: Mapping[str, int], room: int | None
) -> Mapping[str, int]:
    """Return slices per task by stage, so that all tasks together fit into `room`.

    Args:
        num_missing: by stage, the number of slices to submit for each request; `[1]` without an
            array.
        given: the spec's slices per task by stage; raised if the tasks do not fit.
        room: array elements and jobs that may still be queued; None: any number.

    Returns:
        The spec's own numbers, or the smallest common number that fits. If nothing fits, one task
        for each stage and request; compare `num_tasks` with `room`.
    """
    packed = {stage: given.get(stage, 1) for stage in num_missing}
    if room is None:
        return packed
    most = max((number for numbers in num_missing.values() for number in numbers), default=1)
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if num_tasks(num_missing, _at_least(packed, middle)) <= room:
            high = middle
        else:
            low = middle + 1
    return _at_least(packed, low)


def _at_least(packed: Mapping[str, int], least: int) -> dict[str, int]:
    return {stage: max(number, least) for stage, number in packed.items()}


def num_tasks(num_missing: Mapping[str, Sequence[int]], packed: Mapping[str, int]) -> int:
    """Return the number of array elements and jobs over all stages."""
    return sum(
        -(-number // packed[stage]) for stage, numbers in num_missing.items() for number in numbers
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStage(StageWork):
    """Stage as the jobs see it, including stages that do not run in this plan."""

    name: str
    origin: str
    """Name in the file, for a combination of a matrix; otherwise empty."""
    fields: Mapping[str, str]
    """Hash of each value in the fingerprint, by key (`config.url`); values may be secrets."""
    slices_per_task: int
    """Number in the spec; a plan may pack more."""
    after: tuple[Dependency, ...]
    python: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """Job to submit."""

    stage: str
    slices: tuple[int, ...]
    """Ascending; (0,) for a stage without an array."""
    slices_per_task: int | None = None
    """Set for an array whose elements process several slices (`slurm_jobs.run_folder.orders`)."""
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
    num_running: Mapping[str, int] = field(default_factory=dict)
    """Largest number of array tasks of the active work that may run at once, by stage. Several
    slices of one task count once, and an array counts at most its throttle."""
    why_not: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Reason why a slice runs again although it was complete, by stage and slice."""


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
        stage, resources = part.stage, part.stage.resources
        slices_per_task = packed[stage.name] if stage.is_array else 1
        pieces = cut_slices(
            alike[stage.name],
            slices_per_task=slices_per_task,
            max_running=part.max_running,
            max_array_size=limits.max_array_size if stage.is_array else None,
        )
        jobs += [
            PlannedJob(
                stage=stage.name,
                slices=piece.slices,
                slices_per_task=piece.slices_per_task,
                resources=_for_tasks(piece.request.applied_to(resources), slices_per_task),
                max_running=piece.max_running,
                after_active=part.after_active,
                after_previous=piece.after_previous,
                why=reasons_text(part.reasons, piece.slices, stage.num_slices),
            )
            for piece in pieces
        ]
    return tuple(jobs)


def _for_tasks(resources: JobResources, slices_per_task: int) -> JobResources:
    """Return the resources of tasks that process so many slices, one after the other."""
    return replace(resources, timeout_min=resources.timeout_min * slices_per_task)


def gpu_hours_asked(job: PlannedJob) -> float:
    """Return the GPU-hours that a job may use until its time limit, over all its array tasks."""
    return job.resources.total_gpus * job.num_tasks * job.resources.timeout_min / 60
