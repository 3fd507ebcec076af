"""Submission of a plan: intent, sbatch, job id, one job at a time."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.base.errors import InputError, SchedulerError, SubmissionUnknownError
from slurm_jobs.base.files import (
    PRIVATE_DIR_MODE,
    create_once,
    dump_json,
    make_private_dir,
    write_bytes_atomic,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.machine import user_name
from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.formats.records import ParentStage
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.planned import Plan, PlannedJob
from slurm_jobs.plan.stage_dependencies import Slices, corresponds, note_on_different_cut
from slurm_jobs.run.parents import Parents, SubmittedJob
from slurm_jobs.run.snapshot import CodeSnapshot
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import JobOrder, StageWork, name_of_job, order_to_json
from slurm_jobs.run_folder.paths import RunPaths, run_name
from slurm_jobs.run_folder.resolved_spec import write_resolved_spec
from slurm_jobs.run_folder.run_records import last_plan_number, read_stage_records
from slurm_jobs.run_folder.run_values import RunMeta
from slurm_jobs.run_folder.submission_lock import Turn, refuse_if_lost
from slurm_jobs.schedulers.protocol import JobDependencies, Scheduler
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.profile import ClusterProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class Connections:
    """Earlier jobs that new jobs depend on."""

    active: Mapping[str, Mapping[JobKey, Slices]] = field(default_factory=dict)
    """Jobs that continue unchanged; later stages wait for them. Jobs or array elements by stage,
    each with the slices that it works on."""
    ending: Mapping[str, Sequence[JobKey]] = field(default_factory=dict)
    """Jobs that were cancelled and have not ended; new jobs of the same stage wait for their end.
    """


def job_dependencies(
    plan: Plan, job: PlannedJob, submitted: Sequence[SubmittedJob], connections: Connections
) -> JobDependencies:
    """Return the jobs that a job depends on, by kind: of parent stages, then of its own stage.

    Completed parents are left out. A parent of the kind `aftercorr` counts only where it works on
    slices of this job.
    """
    dependencies: dict[DependencyKind, list[JobKey]] = {}
    slices = frozenset(job.slices)
    for dependency in plan.stage(job.stage).after:
        parents = [earlier for earlier in submitted if earlier.stage == dependency.stage]
        active = connections.active.get(dependency.stage, {})
        if dependency.kind != "aftercorr":
            keys = [*(parent.job for parent in parents), *active.keys()]
            _add(dependencies, dependency.kind, keys)
            continue
        for parent in parents:
            if slices.intersection(parent.planned.slices):
                is_by_element = side_by_side(job, parent.planned)
                _add(dependencies, "aftercorr" if is_by_element else "afterok", [parent.job])
        # Slurm compares elements by number, and those of a running job may be cut otherwise.
        _add(dependencies, "afterok", [key for key, others in active.items() if slices & others])
    _add(dependencies, "afterany", connections.ending.get(job.stage, ()))
    if job.after_active:
        _add(dependencies, "afterany", connections.active.get(job.stage, ()))
    if job.after_previous:
        previous = [earlier.job for earlier in submitted if earlier.stage == job.stage]
        _add(dependencies, "afterany", previous[-1:])
    return dependencies


def _add(
    dependencies: dict[DependencyKind, list[JobKey]], kind: DependencyKind, keys: Iterable[JobKey]
) -> None:
    """Add jobs of a kind; a kind without jobs gets no entry."""
    for key in keys:
        dependencies.setdefault(kind, []).append(key)


def side_by_side(job: PlannedJob, parent: PlannedJob) -> bool:
    """Check whether each element can wait for the parent's element with the same number."""
    return corresponds(job.slices, job.slices_per_task, parent.slices, parent.slices_per_task)


def dependency_notes(plan: Plan, connections: Connections = Connections()) -> tuple[str, ...]:
    """Return notes on jobs that wait for more than the spec asks for."""
    notes = [d.instead for stage in plan.stages for d in stage.after if d.instead]
    for job in plan.jobs:
        parents = [d.stage for d in plan.stage(job.stage).after if d.kind == "aftercorr"]
        for other in plan.jobs:
            is_parent = other.stage in parents and not set(job.slices).isdisjoint(other.slices)
            if is_parent and not side_by_side(job, other):
                notes.append(note_on_different_cut(job.stage, other.stage))
        for name in parents:
            active = connections.active.get(name, {}).values()
            if any(not slices.isdisjoint(job.slices) for slices in active):
                notes.append(
                    f"`{job.stage}` waits for all of `{name}` that runs now (afterok instead of "
                    "aftercorr)"
                )
        if job.after_previous:
            num_arrays = sum(other.stage == job.stage for other in plan.jobs)
            notes.append(
                f"`{job.stage}` has {num_arrays} arrays, which run one after the other, because "
                f"only {job.max_running} of its tasks may run at once (max_running)"
            )
        if job.after_active:
            notes.append(
                f"`{job.stage}` waits for the end of its tasks that run now, because they are as "
                "many as may run at once (max_running)"
            )
    return tuple(dict.fromkeys(notes))


def create_run(
    loaded: LoadedSpec, profile: ClusterProfile, *, cluster_name: str | None = None
) -> RunPaths:
    """Create the private folder of a new run and record the request.

    Args:
        loaded: the spec.
        profile: of its cluster.
        cluster_name: name that Slurm gives the cluster, if any.

    Raises:
        InputError: the folder cannot be created.
    """
    created_unix_s = time.time()
    runs_dir = Path(loaded.spec.runs_dir)
    paths = RunPaths(runs_dir / run_name(loaded.spec.name, created_unix_s))
    meta = RunMeta(
        run_id=paths.run_dir.name,
        name=loaded.spec.name,
        created_unix_s=created_unix_s,
        submitted_by=user_name(),
        host=socket.gethostname(),
        scheduler=profile.scheduler,
        version=__version__,
        spec_file=loaded.file,
        max_cpus=profile.max_cpus,
        cluster_name=cluster_name,
        uid=os.getuid(),
    )
    try:
        make_private_dir(runs_dir)
        paths.run_dir.mkdir(mode=PRIVATE_DIR_MODE)
        paths.given_spec.parent.mkdir(mode=PRIVATE_DIR_MODE)
    except OSError as error:
        message = f"runs_dir: cannot make {paths.run_dir}: {error.strerror}"
        raise InputError(message) from error
    write_text_atomic(paths.given_spec, loaded.text)
    write_resolved_spec(paths, loaded.spec)
    origin = {
        "profile": profile.model_dump(mode="json"),
        "spec_file": loaded.file,
        "spec_dir": loaded.spec_dir,
        "overrides": list(loaded.overrides),
        "num_submitted_overrides": len(loaded.overrides),  # resumes add theirs
    }
    write_json_atomic(paths.spec_origin, origin)
    write_json_atomic(paths.run_json, asdict(meta))
    return paths


MAX_REQUEUES = 50
"""Limit for requeues of a job at its time limit, before a person should inspect it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Values that all jobs of a run share."""

    paths: RunPaths
    run_id: str
    scheduler: Scheduler
    snapshot: CodeSnapshot
    spec_dir: str
    limit: int | None
    main_addr: str | None
    num_again: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Number of times that resumes requested each slice again, complete or not, by stage and slice.
    """
    shell_variables: Mapping[str, str] = field(default_factory=dict)
    """SBATCH_... variables that set an option of the run's jobs. A resume keeps them."""
    other_code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Slices that a resume kept although their code has changed: ranges by token, by stage."""


def write_plan(context: RunContext, plan: Plan) -> int:
    """Write the plan under the next number, and return the number."""
    paths, snapshot = context.paths, context.snapshot
    values = {
        "created_unix_s": time.time(),
        "snapshot": {
            "name": snapshot.folder.name,
            "user_fingerprint": snapshot.user_fingerprint,
        },
        "shell_variables": dict(context.shell_variables),
        "stages": [
            {
                "name": stage.name,
                "origin": stage.origin,
                "run": stage.run,
                "num_slices": stage.num_slices,
                "is_array": stage.is_array,
                "retries": stage.retries,
                "fingerprint": stage.fingerprint,
                "fields": dict(stage.fields),
                "after": {d.stage: d.kind for d in stage.after},
                "resources": dataclasses.asdict(stage.resources),
                "num_again": context.num_again.get(stage.name, {}),
                "other_code": context.other_code.get(stage.name, {}),
            }
            for stage in plan.stages
        ],
        "jobs": [
            {
                "stage": job.stage,
                "slices": ranges_text(job.slices),
                "slices_per_task": job.slices_per_task,
                "why": job.why,
            }
            for job in plan.jobs
        ],
    }
    make_private_dir(paths.plans_dir)
    number = last_plan_number(paths) + 1
    while not create_once(paths.plan(number), dump_json(values).encode()):
        number += 1
    return number


def make_order(context: RunContext, plan: Plan, job: PlannedJob, token: str) -> JobOrder:
    """Build the order with everything that the job's supervisor needs."""
    stage, paths = plan.stage(job.stage), context.paths
    work = {f.name: getattr(stage, f.name) for f in dataclasses.fields(StageWork)}
    work["resources"] = job.resources  # a job may have others than its stage
    num_again = context.num_again.get(job.stage, {})
    parents = [plan.stage(dependency.stage) for dependency in stage.after]
    origins = [parent.origin for parent in parents]
    return JobOrder(
        **work,
        run_id=context.run_id,
        run_dir=str(paths.run_dir),
        token=token,
        job_name=name_of_job(plan.name, stage.name, token),
        scheduler=context.scheduler.name,
        stage=stage.name,
        slices=job.slices,
        slices_per_task=job.slices_per_task,
        max_running=job.max_running,
        num_again={i: num_again[i] for i in job.slices if i in num_again},
        max_requeues=MAX_REQUEUES,
        parents=tuple(
            ParentStage(
                stage=parent.name,
                run=parent.run,
                output_dir=paths.output_dir(parent.name),
                num_slices=parent.num_slices,
                # Several parents of one matrix share an origin, which then names none of them.
                origin=parent.origin if origins.count(parent.origin) == 1 else "",
            )
            for parent in parents
        ),
        ancestor_output_dirs={s.name: str(paths.output_dir(s.name)) for s in plan.stages},
        python=stage.python or sys.executable,
        start_script=str(context.snapshot.start_script),
        main_addr=context.main_addr,
        spec_dir=context.spec_dir,
        limit=context.limit,
        log_dir=str(paths.logs_dir(stage.name)),
    )


def submit_plan(
    context: RunContext,
    plan: Plan,
    connections: Connections,
    *,
    turn: Turn,
    on_job: Callable[[SubmittedJob], None] = lambda _job: None,
) -> list[SubmittedJob]:
    """Submit the plan's jobs in order, inside `submitting`, which gave the `turn`.

    Raises:
        SchedulerError: a job was refused, or its parent can no longer be waited for. Earlier jobs
            stay queued; the message gives the command that continues.
        RunFailedError: another command considered this one dead; earlier jobs stay queued.
        KeyboardInterrupt: the message says how many jobs are queued, and how to go on.
    """
    paths, scheduler = context.paths, context.scheduler
    submitted: list[SubmittedJob] = []
    newest = turn.begin
    parents = Parents(paths, scheduler, connections.active)
    try:
        for job in plan.jobs:
            dependencies = job_dependencies(plan, job, submitted, connections)
            parents.refuse_gone(job, dependencies)
            # Checked before the intent is written: if another command has taken over, the intent
            # would take the slices from that command's jobs.
            refuse_if_lost(turn, newest)
            order = make_order(context, plan, job, secrets.token_hex(4))
            _write_intent(paths, order, dependencies, scheduler.render(order, dependencies))
            try:
                job_id = scheduler.submit(order, dependencies)
            except SchedulerError as error:
                job_id = _id_despite_error(context, order, error)
            newest = append_entry(paths.ledger_dir, "submitted", order.token, {"job_id": job_id})
            key = JobKey(order.job_name, job_id)
            done = SubmittedJob(planned=job, token=order.token, job=key)
            submitted.append(done)
            parents.add(done)
            on_job(done)
        scheduler.start()
    except KeyboardInterrupt as stop:
        message = _interrupted_text(paths.run_dir, len(submitted), len(plan.jobs))
        raise KeyboardInterrupt(message) from stop
    return submitted


def _interrupted_text(run_dir: Path, num_submitted: int, num_jobs: int) -> str:
    folder = shlex.quote(str(run_dir))
    if num_submitted == num_jobs:
        return f"all jobs of {folder} were submitted. To see them: slurm-jobs status {folder}"
    counted = f"{num_submitted} of the {num_jobs}" if num_submitted else "none of the"
    text = (
        f"{counted} jobs of {folder} were submitted. To submit the others: slurm-jobs "
        f"resume {folder}"
    )
    return f"{text}. To end these: slurm-jobs cancel {folder}" if num_submitted else text


def _write_intent(
    paths: RunPaths, order: JobOrder, dependencies: JobDependencies, script: str
) -> None:
    """Write everything that the job needs, and then its intent."""
    make_private_dir(paths.job_dir(order.token))
    make_private_dir(paths.logs_dir(order.stage))
    write_json_atomic(paths.job_json(order.token), order_to_json(order))
    data = script.encode(errors="surrogateescape")  # paths may not be UTF-8
    write_bytes_atomic(paths.batch_script(order.token), data)
    attempts = read_stage_records(paths, order.stage).attempts
    intent = {
        "stage": order.stage,
        "slices": ranges_text(order.slices),
        "is_array": order.is_array,
        "slices_per_task": order.slices_per_task,
        "max_running": order.max_running,
        "fingerprint": order.fingerprint,
        "code": Path(order.start_script).parent.name,
        "job_name": order.job_name,
        "dependencies": {
            kind: [[key.name, key.job_id] for key in keys] for kind, keys in dependencies.items()
        },
        "base_attempts": {str(i): attempts[i][-1] for i in order.slices if attempts.get(i)},
    }
    append_entry(paths.ledger_dir, "intent", order.token, intent)


def _id_despite_error(context: RunContext, order: JobOrder, error: SchedulerError) -> str:
    """Return the id of a job that is queued although sbatch reported an error.

    Raises:
        SubmissionUnknownError: the result is unknown; the intent stays open and is looked up later.
        SchedulerError: the job was refused, and this is recorded.
    """
    folder = context.paths.run_dir
    how_to_continue = (
        f"\nIts name is {order.job_name}. To look it up and continue: slurm-jobs resume {folder}"
    )
    try:
        job_id = context.scheduler.find([order.job_name]).get(order.job_name)
    except SchedulerError as lookup_error:
        message = f"{error}; and looking it up failed: {lookup_error}{how_to_continue}"
        raise SubmissionUnknownError(message) from error
    if job_id is not None:
        return job_id
    if isinstance(error, SubmissionUnknownError):
        message = f"{error}{how_to_continue}"
        raise SubmissionUnknownError(message) from error
    append_entry(context.paths.ledger_dir, "refused", order.token, {"reason": str(error)})
    message = (
        f"{error}\nJobs submitted before it stay queued. Fix the cause, then: "
        f"slurm-jobs resume {folder} (with --update-spec if you changed the spec's file)"
    )
    raise SchedulerError(message) from error
