"""Submission of a plan: intent, sbatch, job id, one job at a time."""

from __future__ import annotations

import dataclasses
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.common.context import ParentStage
from slurm_jobs.common.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.common.files import (
    create_once,
    dump_json,
    make_private_dir,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.plan import Plan, PlannedJob, PlannedStage
from slurm_jobs.run.connections import Connections, SubmittedJob, job_dependencies
from slurm_jobs.run.intents import Entry
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.orders import JobOrder, name_of_job, order_to_json
from slurm_jobs.run.parents import Parents
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.snapshot import CodeSnapshot
from slurm_jobs.run.store import last_plan_number, read_stage_records
from slurm_jobs.run.turns import Turn, refuse_if_lost
from slurm_jobs.schedulers.protocol import JobDependencies, Scheduler

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
