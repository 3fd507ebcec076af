"""Carries out a plan: for each job the intent, then sbatch, then the id, one job at a time.

A `begin` entry keeps a second command out while the first one submits; an
`end` entry lets the next one in. A command that was killed leaves its
`begin` behind: it is taken over when its process is gone.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.common.context import ParentStage
from slurm_jobs.common.errors import RunFailedError, SchedulerError, SubmissionUnknownError
from slurm_jobs.common.files import (
    create_once,
    dump_json,
    make_private_dir,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.common.records import DependencyKind
from slurm_jobs.plan import Plan, PlannedJob, PlannedStage
from slurm_jobs.run.intents import Entry
from slurm_jobs.run.ledger import append_entry, read_ledger
from slurm_jobs.run.orders import JobOrder, order_to_json
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.snapshot import CodeSnapshot
from slurm_jobs.run.store import last_plan_number, read_stage_records
from slurm_jobs.schedulers.protocol import JobDependencies, Scheduler

MAX_REQUEUES = 50
"""How often a job may be requeued at its time limit before a person should look at it."""
OTHER_HOST_PATIENCE_S = 600.0
"""A command on another host that began longer ago than this and never ended is taken for dead."""

JobIds = Mapping[str, tuple[str, ...]]
"""Jobs or array elements by stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Connections:
    """Earlier jobs that new ones must come after."""

    active: JobIds = field(default_factory=dict)
    """Go on as they are; stages that come after theirs wait for them."""
    ending: JobIds = field(default_factory=dict)
    """Were cancelled and still run; new jobs of the same stage wait until they have ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """What all jobs of a run share."""

    paths: RunPaths
    run_id: str
    scheduler: Scheduler
    snapshot: CodeSnapshot
    spec_dir: str
    limit: int | None
    main_addr: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmittedJob:
    """A job that the scheduler took."""

    stage: str
    token: str
    job_id: str
    num_tasks: int


@contextmanager
def submitting(paths: RunPaths) -> Iterator[None]:
    """Keep other commands from submitting for this run at the same time.

    Raises:
        RunFailedError: another command is at it; the message names it.
    """
    token = secrets.token_hex(4)
    own = append_entry(paths.ledger_dir, "begin", token, {**_whoami()})
    try:
        other = _other_command(read_ledger(paths.ledger_dir), own)
        if other is not None:
            values = other.values
            message = (
                f"another command (pid {values['pid']} on {values['host']}) is submitting for this "
                "run at this moment; ask `slurm-jobs status` when it has ended"
            )
            raise RunFailedError(message)
        yield
    finally:
        append_entry(paths.ledger_dir, "end", token, {})


def _whoami() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "process_start": _start(os.getpid())}


def _start(pid: int) -> str | None:
    """When a process of this host started, in the kernel's ticks; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def _other_command(entries: list[Entry], own: Entry) -> Entry | None:
    """An earlier command that began, has not ended, and may still live."""
    ended = {entry.token for entry in entries if entry.kind == "end"}
    for entry in entries:
        if entry.kind != "begin" or entry.number >= own.number or entry.token in ended:
            continue
        values = entry.values
        if values["host"] == socket.gethostname():
            if _start(values["pid"]) == values["process_start"]:
                return entry
        elif time.time() - values["time_unix_s"] < OTHER_HOST_PATIENCE_S:
            return entry
    return None


def write_plan(paths: RunPaths, plan: Plan, snapshot: CodeSnapshot) -> int:
    """Write the plan under the next number, and return that."""
    values = {
        "created_unix_s": time.time(),
        "snapshot": {
            "name": snapshot.folder.name,
            "user_fingerprint": snapshot.user_fingerprint,
        },
        "stages": [_stage_values(stage) for stage in plan.stages],
        "jobs": [
            {"stage": job.stage, "slices": ranges_text(job.slices), "why": job.why}
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
        "run": stage.run,
        "num_slices": stage.num_slices,
        "is_array": stage.is_array,
        "retries": stage.retries,
        "fingerprint": stage.fingerprint,
        "after": {d.stage: d.kind for d in stage.after},
        "resources": dataclasses.asdict(stage.resources),
    }


def make_order(context: RunContext, plan: Plan, job: PlannedJob, token: str) -> JobOrder:
    """Everything that the job's supervisor needs."""
    stage = plan.stage(job.stage)
    paths = context.paths
    return JobOrder(
        run_id=context.run_id,
        run_dir=str(paths.run_dir),
        token=token,
        job_name=f"{plan.name}.{stage.name}.{token}",
        scheduler=context.scheduler.name,
        stage=stage.name,
        run=stage.run,
        shell=stage.shell,
        slices=job.slices,
        is_array=stage.is_array,
        max_running=job.max_running,
        num_slices=stage.num_slices,
        fingerprint=stage.fingerprint,
        retries=stage.retries,
        max_requeues=MAX_REQUEUES,
        config=stage.config,
        parents=tuple(_parent(plan.stage(d.stage), paths) for d in stage.after),
        ancestor_output_dirs={s.name: str(paths.output_dir(s.name)) for s in plan.stages},
        python=stage.python or sys.executable,
        start_script=str(context.snapshot.start_script),
        setup=stage.setup,
        environment=stage.environment,
        node_local_dir=stage.node_local_dir,
        main_addr=context.main_addr,
        spec_dir=context.spec_dir,
        limit=context.limit,
        log_dir=str(paths.logs_dir(stage.name)),
        resources=stage.resources,
    )


def _parent(stage: PlannedStage, paths: RunPaths) -> ParentStage:
    return ParentStage(
        stage=stage.name,
        run=stage.run,
        output_dir=paths.output_dir(stage.name),
        num_slices=stage.num_slices,
    )


def submit_plan(
    context: RunContext,
    plan: Plan,
    connections: Connections,
    *,
    on_job: Callable[[SubmittedJob], None] = lambda _job: None,
) -> list[SubmittedJob]:
    """Submit the plan's jobs in order; call inside `submitting`.

    Raises:
        SchedulerError: a job was refused. Jobs before it are queued and stay
            so; the message says how to go on.
    """
    submitted: list[SubmittedJob] = []
    for job in plan.jobs:
        dependencies = job_dependencies(plan, job, submitted, connections)
        done = _submit_job(context, plan, job, dependencies)
        submitted.append(done)
        on_job(done)
    context.scheduler.start()
    return submitted


def job_dependencies(
    plan: Plan, job: PlannedJob, submitted: list[SubmittedJob], connections: Connections
) -> JobDependencies:
    """Ids that a job comes after; a parent that is complete is left out."""
    dependencies: dict[DependencyKind, list[str]] = {}
    for dependency in plan.stage(job.stage).after:
        ids = [done.job_id for done in submitted if done.stage == dependency.stage]
        ids += connections.active.get(dependency.stage, ())
        if ids:
            dependencies.setdefault(dependency.kind, []).extend(ids)
    ending = connections.ending.get(job.stage, ())
    if ending:
        dependencies.setdefault("afterany", []).extend(ending)
    return dependencies


def _submit_job(
    context: RunContext, plan: Plan, job: PlannedJob, dependencies: JobDependencies
) -> SubmittedJob:
    paths, scheduler = context.paths, context.scheduler
    token = secrets.token_hex(4)
    order = make_order(context, plan, job, token)
    make_private_dir(paths.job_dir(token))
    make_private_dir(paths.logs_dir(job.stage))
    write_json_atomic(paths.job_json(token), order_to_json(order))
    write_text_atomic(paths.batch_script(token), scheduler.render(order, dependencies))
    attempts = read_stage_records(paths, job.stage).attempts
    intent = {
        "stage": job.stage,
        "slices": ranges_text(job.slices),
        "is_array": order.is_array,
        "fingerprint": order.fingerprint,
        "job_name": order.job_name,
        "base_attempts": {str(i): attempts[i][-1] for i in job.slices if attempts.get(i)},
    }
    append_entry(paths.ledger_dir, "intent", token, intent)
    try:
        job_id = scheduler.submit(order, dependencies)
    except SubmissionUnknownError as error:
        message = (
            f"{error}\nIts name is {order.job_name}; this looks it up and goes on: "
            f"slurm-jobs resume {paths.run_dir}"
        )
        raise SubmissionUnknownError(message) from error
    except SchedulerError as error:
        append_entry(paths.ledger_dir, "refused", token, {"reason": str(error)})
        message = (
            f"{error}\nJobs submitted before it stay queued. Mend the cause, then: "
            f"slurm-jobs resume {paths.run_dir}"
        )
        raise SchedulerError(message) from error
    append_entry(paths.ledger_dir, "submitted", token, {"job_id": job_id})
    return SubmittedJob(stage=job.stage, token=token, job_id=job_id, num_tasks=len(job.slices))
