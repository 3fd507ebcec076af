"""Batch process of a job or array task: fencing, signals, retries and requeue.

It processes its slices, mostly one. For each it starts the ranks, waits, and records how the
attempt ended. A failed attempt is repeated in place, up to the stage's `retries`; an attempt that
stopped on request is requeued.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.common.context import TaskContext, context_to_json
from slurm_jobs.common.errors import STOPPED_EXIT_CODE, SUPERSEDED_EXIT_CODE, StageConfigError
from slurm_jobs.common.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.common.records import AttemptRecord, CompletionRecord
from slurm_jobs.common.references import substitute_references
from slurm_jobs.common.truncation import truncated_lines
from slurm_jobs.run.intents import Intent, intents, is_superseded
from slurm_jobs.run.kinds import kind_begun_on
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.orders import JobOrder, read_order
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.task.attempts import SliceTask
from slurm_jobs.task.environment import (
    JobEnvironment,
    free_port,
    main_address,
    read_environment,
    requeue,
    second_address,
)
from slurm_jobs.task.fencing import own_intent, unseen_reason
from slurm_jobs.task.launch import Ranks, RanksEnd
from slurm_jobs.task.rank import result_path


def supervise(run_dir: Path, token: str) -> int:
    """Run the job of intent `token` and return its exit code: 0 if every slice is complete."""
    os.umask(0o077)
    paths = RunPaths(run_dir)
    order = read_order(paths.job_json(token))
    environment = read_environment(order, os.environ)
    own = own_intent(paths, token)
    tasks = _slice_tasks(order, paths, environment, own)
    if own is None:
        return _unseen(tasks)
    ranks = Ranks(order, environment)
    if not _is_on_its_kind(order, environment):
        return STOPPED_EXIT_CODE
    worst = 0
    given_up = _given_up(tasks) if environment.restart else []
    for task in tasks:
        _say(f"{order.stage} slice {task.slice_index} as job {environment.element_id}")
        if task in given_up:
            _say("this slice has failed for good; it is not tried again")
            worst = worst or 1
            continue
        code = _supervise_slice(task, ranks)
        worst = worst or code
        # This job's next start continues with this slice, or with the remaining ones.
        if ranks.stop_signalled and (code == STOPPED_EXIT_CODE or task is not tasks[-1]):
            return _stopped(task, ranks)
    return worst


def _is_on_its_kind(order: JobOrder, environment: JobEnvironment) -> bool:
    """Return whether the job may work here; if not, it has requested its original GPU type."""
    if not environment.gpu:
        return True
    paths = RunPaths(Path(order.run_dir))
    work = order.fingerprint, order.num_again
    kind = kind_begun_on(paths, order.stage, *work, environment.slices)
    if kind in {"", environment.gpu} or kind not in order.resources.gpu:
        return True
    _say(f"this is {environment.gpu}, and the work was begun on {kind}")
    if environment.restart > order.max_requeues:
        command = shlex.join(["slurm-jobs", "resume", order.run_dir])
        _say(f"not requeued again; to continue: {command}")
        return False
    problem = requeue(order, environment, gpu=kind)
    _say(f"requeued, to run on {kind}" if problem is None else f"not requeued: {problem}")
    return False


def _slice_tasks(
    order: JobOrder, paths: RunPaths, environment: JobEnvironment, own: Intent | None
) -> list[SliceTask]:
    base_attempts = own.base_attempts if own is not None else {}
    return [
        SliceTask(
            order=order,
            paths=paths,
            environment=environment,
            slice_index=index,
            base_attempt=base_attempts.get(index, 0),
            intent_number=own.number if own is not None else 0,
        )
        for index in environment.slices
    ]


def _unseen(tasks: list[SliceTask]) -> int:
    """Fail, because it is unknown whether this job may work: a later one may have its slices."""
    for task in tasks:
        end = RanksEnd(outcome="failed", exit_code=1, reason=unseen_reason(task.paths))
        _say(task.record_end(task.claim(), end, {}).reason)
    return 1


def _given_up(tasks: list[SliceTask]) -> list[SliceTask]:
    """Return slices that failed for good before this job was requeued for the others.

    If no other slice is left, the requeue requests these again.
    """
    failed = [task for task in tasks if task.has_failed_for_good()]
    others = (task for task in tasks if task not in failed)
    return failed if any(not task.is_complete() for task in others) else []


def _supervise_slice(task: SliceTask, ranks: Ranks) -> int:
    """Run attempts at one slice until it is complete, stopped, or failed; return the exit code."""
    if task.is_complete():
        _say("this slice is complete already; nothing to do")
        return 0
    while True:
        if _is_superseded(task):
            return SUPERSEDED_EXIT_CODE
        completion = _attempt(task, ranks)
        if completion.outcome == "superseded":
            return SUPERSEDED_EXIT_CODE
        if completion.outcome == "completed":
            return 0
        if completion.outcome == "stopped":
            return STOPPED_EXIT_CODE
        if ranks.stop_signalled or not completion.retryable or not _may_retry(task):
            return completion.exit_code or 1
        _say("trying again")


def _is_superseded(task: SliceTask) -> bool:
    entries = read_ledger(task.paths.ledger_dir, up_to=task.intent_number)
    if not is_superseded(intents(entries), task.order.token, task.slice_index):
        return False
    _say("this job was superseded by a later submit, or cancelled; it does no work")
    return True


def _attempt(task: SliceTask, ranks: Ranks) -> CompletionRecord:
    record = task.claim()
    _say(f"attempt {record.attempt}")
    if _is_superseded(task):  # again: a submit sees this attempt, or we see its intent
        return task.record_end(record, RanksEnd(outcome="superseded"), {})
    task_dir = task.paths.task_dir(record.stage, record.slice_index, record.attempt)
    try:
        _write_orders(task, record, task_dir)
        end = ranks.run(task_dir)
    except StageConfigError as error:
        end = RanksEnd(
            outcome="failed", exit_code=error.exit_code, reason=str(error), retryable=False
        )
    result: dict[str, Any] = {}
    if end.outcome == "completed" and result_path(task_dir, 0).exists():
        result = read_json(result_path(task_dir, 0))
    completion = task.record_end(record, end, result)
    _say(f"attempt {record.attempt} {completion.outcome}. {completion.reason}".strip())
    return completion


def _write_orders(task: SliceTask, record: AttemptRecord, task_dir: Path) -> None:
    """Write `context.json` and `order.json`, which the ranks read, to the attempt's folder."""
    order = task.order
    context = _context(task, record, task_dir)
    logs_dir = task.paths.logs_dir(order.stage)
    for folder in (task_dir, context.output_dir, context.timing_dir, logs_dir):
        make_private_dir(folder)
    write_json_atomic(task_dir / "context.json", context_to_json(context))
    launch = {
        "shell": order.shell,
        "start_script": order.start_script,
        "cpus_per_task": order.resources.cpus_per_task,
        "nsight": order.nsight,
        "num_gpus": order.resources.num_gpus,
        "second_addr": second_address(task.environment),
    }
    write_json_atomic(task_dir / "order.json", launch)


def _context(task: SliceTask, record: AttemptRecord, task_dir: Path) -> TaskContext:
    """Return the context of rank 0; each rank adds its own identity."""
    order, environment, paths = task.order, task.environment, task.paths
    return TaskContext(
        run_dir=paths.run_dir,
        run_id=order.run_id,
        stage=order.stage,
        slice_index=record.slice_index,
        num_slices=order.num_slices,
        attempt=record.attempt,
        rank=0,
        num_ranks=order.resources.num_ranks,
        local_rank=0,
        num_local_ranks=order.resources.tasks_per_node,
        node_rank=0,
        num_nodes=order.resources.nodes,
        node_name=environment.node_names[0],
        main_addr=main_address(order, environment),
        main_port=free_port(),
        output_dir=paths.output_dir(order.stage),
        timing_dir=paths.timing_dir(order.stage, record.slice_index, record.attempt),
        task_dir=task_dir,
        node_local_dir=Path(order.node_local_dir),
        parents=order.parents,
        config=substitute_references(order.config, order.ancestor_output_dirs),
        spec_dir=Path(order.spec_dir),
        limit=order.limit,
        deadline_unix_s=environment.deadline_unix_s,
        fingerprint=order.fingerprint,
        num_again=order.num_again.get(record.slice_index, 0),
    )


def _may_retry(task: SliceTask) -> bool:
    failed = task.num_own("failed")
    if failed > task.order.retries:
        _say(f"failed attempts: {failed}; retries that the stage allows: {task.order.retries}")
        return False
    return True


def _stopped(task: SliceTask, ranks: Ranks) -> int:
    """Request a requeue of a stopped job near the time limit; after SIGTERM Slurm decides."""
    if not ranks.stop_signalled or ranks.term_signalled:
        return STOPPED_EXIT_CODE
    restarts = task.num_own("stopped")
    if restarts > task.order.max_requeues:
        command = shlex.join(["slurm-jobs", "resume", str(task.paths.run_dir)])
        _say(f"stopped {restarts} times; not requeued again; to continue: {command}")
        return STOPPED_EXIT_CODE
    problem = requeue(task.order, task.environment, gpu=task.environment.gpu)
    _say("requeued" if problem is None else f"not requeued: {problem}")
    return STOPPED_EXIT_CODE


def _say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with suppress(OSError):  # the log may be on a full disk, and the work continues
        print(f"[{stamp}] slurm-jobs: {truncated_lines(text)}", file=sys.stderr, flush=True)
