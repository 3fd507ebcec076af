"""Submission of a plan: intent, sbatch, job id, one job at a time."""

from __future__ import annotations

import dataclasses
import getpass
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs import __version__
from slurm_jobs.dependencies import Dependency, Slices, corresponds, not_side_by_side
from slurm_jobs.plan import Plan, PlannedJob, PlannedStage
from slurm_jobs.run.snapshot import CodeSnapshot
from slurm_jobs.run_folder.ledger import Entry, Turn, append_entry, refuse_if_lost
from slurm_jobs.run_folder.orders import (
    JobOrder,
    array_indices,
    name_of_job,
    order_to_json,
    slices_of_element,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import RunMeta, last_plan_number, read_stage_records
from slurm_jobs.schedulers.protocol import (
    LIVING_STATES,
    Answer,
    JobDependencies,
    Question,
    Scheduler,
)
from slurm_jobs.shared.errors import InputError, SchedulerError, SubmissionUnknownError
from slurm_jobs.shared.files import (
    PRIVATE_DIR_MODE,
    create_once,
    dump_json,
    make_private_dir,
    ranges_text,
    write_bytes_atomic,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.shared.records import DependencyKind, ParentStage, TaskAccounting
from slurm_jobs.spec.load import LoadedSpec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile

# Dependencies of new jobs on jobs that were submitted earlier.


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


# Creation of a run folder: private, and complete before the first job is submitted.


def create_run(
    loaded: LoadedSpec, profile: ClusterProfile, *, cluster_name: str | None = None
) -> RunPaths:
    """Create the folder of a new run and record the request.

    Args:
        loaded: the spec.
        profile: of its cluster.
        cluster_name: name that Slurm gives the cluster, if any.

    Raises:
        InputError: the folder cannot be created.
    """
    created_unix_s = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(created_unix_s))
    runs_dir = Path(loaded.spec.runs_dir)
    paths = RunPaths(runs_dir / f"{loaded.spec.name}-{stamp}-{secrets.token_hex(2)}")
    try:
        make_private_dir(runs_dir)
        paths.run_dir.mkdir(mode=PRIVATE_DIR_MODE)
        paths.given_spec.parent.mkdir(mode=PRIVATE_DIR_MODE)
    except OSError as error:
        message = f"runs_dir: cannot make {paths.run_dir}: {error.strerror}"
        raise InputError(message) from error
    _write_spec(paths, loaded, profile)
    meta = RunMeta(
        run_id=paths.run_dir.name,
        name=loaded.spec.name,
        created_unix_s=created_unix_s,
        submitted_by=getpass.getuser(),
        host=socket.gethostname(),
        scheduler=profile.scheduler,
        version=__version__,
        spec_file=loaded.file,
        max_cpus=profile.max_cpus,
        cluster_name=cluster_name,
        uid=os.getuid(),
    )
    write_json_atomic(paths.run_json, asdict(meta))
    return paths


def _write_spec(paths: RunPaths, loaded: LoadedSpec, profile: ClusterProfile) -> None:
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


def write_resolved_spec(paths: RunPaths, spec: RunSpec) -> None:
    """Write the complete spec; its stages keep the file's order, which status uses."""
    write_text_atomic(paths.resolved_spec, spec.model_dump_json(indent=1) + "\n")


# Jobs that a slow command has submitted, and checks that later jobs can still wait for them.
#
# Slurm removes a job that can never start, and forgets an ended job after `MinJobAge` (300 s
# unless the site lowers it). A dependency on a forgotten job counts as met, so a job that is
# submitted later would start without its input.


TRUSTED_S = 30.0
"""Seconds for which a job's state counts as current, after its submission or the last query.

Own choice: a tenth of Slurm's default for `MinJobAge`, and longer than an undisturbed submit takes,
so that such a submit needs no query.
"""

REMEMBERED_S = 120.0
"""Seconds after its end for which Slurm is assumed to know a job. A job that waits for it can then
never start, and Slurm removes that job too, so jobs that depend on it with `afterany` are still
submitted. Own choice: well below the default of `MinJobAge`."""

_NEED_SUCCESS: frozenset[DependencyKind] = frozenset({"afterok", "aftercorr"})
"""Kinds that require success. A job that Slurm has forgotten has ended, so `afterany` is rightly
met."""


class Parents:
    """Jobs that a command submitted, with the time until which the state of each is trusted."""

    def __init__(self, paths: RunPaths, plan: Plan, scheduler: Scheduler) -> None:
        self._paths = paths
        self._plan = plan
        self._scheduler = scheduler
        self._jobs: dict[str, SubmittedJob] = {}
        self._since_unix_s = time.time()
        self._added_s: dict[str, float] = {}
        self._trusted_until_s: dict[str, float] = {}

    def add(self, job: SubmittedJob) -> None:
        """Add a job that Slurm has just accepted."""
        self._jobs[job.job_id] = job
        self._added_s[job.job_id] = time.time()
        self._trusted_until_s[job.job_id] = time.time() + TRUSTED_S

    def refuse_gone(self, job: PlannedJob, dependencies: JobDependencies) -> None:
        """Raise if a job would wait for the success of one that is gone or has failed.

        Raises:
            SchedulerError: it would; the message names the stage and the command that continues.
        """
        due = self._due(i for kind in _NEED_SUCCESS for i in dependencies.get(kind, ()))
        if not due or self._scheduler.name == "local":  # its queue keeps all jobs
            return
        answer = self._scheduler.query(
            Question(
                jobs={self._name(self._jobs[job_id]): job_id for job_id in due},
                since_unix_s=self._since_unix_s,
            )
        )
        for job_id in due:
            # Without an answer the id counts, because Slurm accepted the job.
            age_s = time.time() - self._added_s[job_id]
            why = _why_gone(self._paths, self._jobs[job_id], answer, age_s)
            if answer.knows_the_living and why:
                raise SchedulerError(self._message(job, self._jobs[job_id], why))
            self._trusted_until_s[job_id] = time.time() + TRUSTED_S

    def _due(self, job_ids: Iterable[str]) -> list[str]:
        now = time.time()
        return [i for i in dict.fromkeys(job_ids) if self._trusted_until_s.get(i, now) < now]

    def _name(self, job: SubmittedJob) -> str:
        return name_of_job(self._plan.name, job.stage, job.token)

    def _message(self, job: PlannedJob, parent: SubmittedJob, why: str) -> str:
        return (
            f"`{job.stage}` comes after `{parent.stage}`, whose job {parent.job_id} {why} while "
            "this command was running, so the new job cannot wait for it. No further job was "
            "submitted; jobs submitted before stay queued. To continue: "
            f"slurm-jobs resume {self._paths.run_dir}"
        )


def _why_gone(paths: RunPaths, job: SubmittedJob, answer: Answer, age_s: float) -> str:
    """Return why a job can no longer be waited for; empty if it is alive or completed.

    A job that Slurm has forgotten completed if its records show it.

    Args:
        paths: of the run.
        job: a submitted job.
        answer: of the scheduler.
        age_s: of the job, by this machine's clock.
    """
    tasks = {i: t for i, t in answer.tasks.items() if i.partition("_")[0] == job.job_id}
    states = {i: task.state for i, task in tasks.items()}
    ended = [t for t in tasks.values() if t.state not in LIVING_STATES and t.state != "COMPLETED"]
    forgotten_by_now = [
        t for t in ended if t.source != "squeue" and age_s - _duration_s(t) > REMEMBERED_S
    ]
    if forgotten_by_now:
        return f"ended as {forgotten_by_now[0].state}"
    forgotten = _slices_without(job, states)
    if not forgotten or forgotten <= _completed(paths, job):
        return ""
    return "is gone"


def _duration_s(task: TaskAccounting) -> float:
    """Return the seconds from submission to end, both by Slurm's clock; -inf if unknown."""
    if task.submit_unix_s is None or task.end_unix_s is None:
        return -math.inf
    return task.end_unix_s - task.submit_unix_s


def _slices_without(job: SubmittedJob, states: Mapping[str, str]) -> frozenset[int]:
    """Return the slices for which Slurm knows neither the job nor the array element."""
    if job.job_id in states:
        return frozenset()
    slices, per_task = job.planned.slices, job.planned.slices_per_task
    missing = [
        slices_of_element(slices, per_task, element)
        for element in array_indices(slices, per_task)
        if f"{job.job_id}_{element}" not in states
    ]
    return frozenset(index for several in missing for index in several)


def _completed(paths: RunPaths, job: SubmittedJob) -> frozenset[int]:
    endings = read_stage_records(paths, job.stage).endings
    return frozenset(
        index
        for index, by_attempt in endings.items()
        if any(e.token == job.token and e.outcome == "completed" for e in by_attempt.values())
    )


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
            {**_stage_values(stage), "num_again": context.num_again.get(stage.name, {})}
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


def _stage_values(stage: PlannedStage) -> dict[str, Any]:
    return {
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
    }


def make_order(context: RunContext, plan: Plan, job: PlannedJob, token: str) -> JobOrder:
    """Build the order with everything that the job's supervisor needs."""
    stage = plan.stage(job.stage)
    paths, asked = context.paths, context.num_again.get(job.stage, {})
    return JobOrder(
        run_id=context.run_id,
        run_dir=str(paths.run_dir),
        token=token,
        job_name=name_of_job(plan.name, stage.name, token),
        scheduler=context.scheduler.name,
        stage=stage.name,
        run=stage.run,
        shell=stage.shell,
        slices=job.slices,
        is_array=stage.is_array,
        slices_per_task=job.slices_per_task,
        max_running=job.max_running,
        num_slices=stage.num_slices,
        fingerprint=stage.fingerprint,
        num_again={i: asked[i] for i in job.slices if i in asked},
        retries=stage.retries,
        max_requeues=MAX_REQUEUES,
        config=stage.config,
        parents=_parents([plan.stage(d.stage) for d in stage.after], paths),
        ancestor_output_dirs={s.name: str(paths.output_dir(s.name)) for s in plan.stages},
        python=stage.python or sys.executable,
        start_script=str(context.snapshot.start_script),
        setup=stage.setup,
        environment=stage.environment,
        node_local_dir=stage.node_local_dir,
        nsight=stage.nsight,
        main_addr=context.main_addr,
        spec_dir=context.spec_dir,
        limit=context.limit,
        log_dir=str(paths.logs_dir(stage.name)),
        resources=job.resources,
    )


def _parents(stages: Sequence[PlannedStage], paths: RunPaths) -> tuple[ParentStage, ...]:
    origins = [stage.origin for stage in stages]
    return tuple(
        ParentStage(
            stage=stage.name,
            run=stage.run,
            output_dir=paths.output_dir(stage.name),
            num_slices=stage.num_slices,
            origin=stage.origin if origins.count(stage.origin) == 1 else "",
        )
        for stage in stages
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
    """
    submitted: list[SubmittedJob] = []
    newest = turn.begin
    parents = Parents(context.paths, plan, context.scheduler)
    for job in plan.jobs:
        dependencies = job_dependencies(plan, job, submitted, connections)
        parents.refuse_gone(job, dependencies)
        # Not after the intent, which would take the slices from the other command's jobs.
        refuse_if_lost(turn, newest)
        done, newest = _submit_job(context, plan, job, dependencies)
        submitted.append(done)
        parents.add(done)
        on_job(done)
    context.scheduler.start()
    return submitted


def _submit_job(
    context: RunContext, plan: Plan, job: PlannedJob, dependencies: JobDependencies
) -> tuple[SubmittedJob, Entry]:
    """Submit one job and return it with its ledger entry."""
    paths, scheduler = context.paths, context.scheduler
    token = secrets.token_hex(4)
    order = make_order(context, plan, job, token)
    make_private_dir(paths.job_dir(token))
    make_private_dir(paths.logs_dir(job.stage))
    write_json_atomic(paths.job_json(token), order_to_json(order))
    script = scheduler.render(order, dependencies).encode(errors="surrogateescape")
    write_bytes_atomic(paths.batch_script(token), script)  # paths may not be UTF-8
    attempts = read_stage_records(paths, job.stage).attempts
    intent = {
        "stage": job.stage,
        "slices": ranges_text(job.slices),
        "is_array": order.is_array,
        "slices_per_task": order.slices_per_task,
        "fingerprint": order.fingerprint,
        "job_name": order.job_name,
        "base_attempts": {str(i): attempts[i][-1] for i in job.slices if attempts.get(i)},
    }
    append_entry(paths.ledger_dir, "intent", token, intent)
    try:
        job_id = scheduler.submit(order, dependencies)
    except SchedulerError as error:
        job_id = _taken_after_all(context, order, error)
    entry = append_entry(paths.ledger_dir, "submitted", token, {"job_id": job_id})
    return SubmittedJob(planned=job, token=token, job_id=job_id), entry


def _taken_after_all(context: RunContext, order: JobOrder, error: SchedulerError) -> str:
    """Return the id of a job that is queued although sbatch reported an error.

    Raises:
        SubmissionUnknownError: the result is unknown; the intent stays open and is looked up later.
        SchedulerError: the job was refused, and this is recorded.
    """
    folder = context.paths.run_dir
    try:
        job_id = context.scheduler.find([order.job_name]).get(order.job_name)
    except SchedulerError as lookup_error:
        error = SubmissionUnknownError(f"{error}; and looking it up failed: {lookup_error}")
        job_id = None
    if job_id is not None:
        return job_id
    if isinstance(error, SubmissionUnknownError):
        message = (
            f"{error}\nIts name is {order.job_name}. To look it up and continue: "
            f"slurm-jobs resume {folder}"
        )
        raise SubmissionUnknownError(message) from error
    append_entry(context.paths.ledger_dir, "refused", order.token, {"reason": str(error)})
    message = (
        f"{error}\nJobs submitted before it stay queued. Fix the cause, then: "
        f"slurm-jobs resume {folder} (with --update-spec if you changed the spec's file)"
    )
    raise SchedulerError(message) from error
