"""The batch process of a job or array task: one place for fencing, signals, retries and records.

It starts the ranks, waits, and writes down how the attempt ended. A failing
attempt is tried again in place, up to the stage's `retries`; one that stopped
on request is requeued.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.common.context import TaskContext, context_to_json
from slurm_jobs.common.errors import STOPPED_EXIT_CODE, SUPERSEDED_EXIT_CODE, StageConfigError
from slurm_jobs.common.files import (
    create_once,
    dump_json,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.common.records import (
    AttemptRecord,
    CompletionRecord,
    Outcome,
    parse_attempt_name,
    parse_completion_name,
    record_to_json,
)
from slurm_jobs.run.intents import intents, is_superseded
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.orders import JobOrder, read_order
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.task.environment import (
    JobEnvironment,
    free_port,
    main_address,
    read_environment,
    requeue,
)
from slurm_jobs.task.launch import Ranks, RanksEnd
from slurm_jobs.task.rank import result_path
from slurm_jobs.task.references import substitute_references


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """One array task's supervision: what does not change between attempts."""

    order: JobOrder
    paths: RunPaths
    environment: JobEnvironment

    @property
    def slice_index(self) -> int:
        return self.environment.slice_index


def supervise(run_dir: Path, token: str) -> int:
    """Run the job of intent `token` and return its exit code."""
    os.umask(0o077)
    paths = RunPaths(run_dir)
    order = read_order(paths.job_json(token))
    environment = read_environment(order, os.environ)
    task = _Task(order=order, paths=paths, environment=environment)
    _say(f"{order.stage} slice {task.slice_index} as job {environment.element_id}")
    if _is_complete(task):
        _say("this slice is complete already; nothing to do")
        return 0
    ranks = Ranks(task.order, environment)
    while True:
        if is_superseded(intents(read_ledger(paths.ledger_dir)), token, task.slice_index):
            _say("this job was superseded by a later submit, or cancelled; it does no work")
            return SUPERSEDED_EXIT_CODE
        completion = _attempt(task, ranks)
        if completion.outcome == "completed":
            return 0
        if completion.outcome == "stopped":
            return _stopped(task, ranks)
        if ranks.stop_signalled or not completion.retryable or not _may_retry(task):
            return completion.exit_code or 1
        _say("trying again")


def _attempt(task: _Task, ranks: Ranks) -> CompletionRecord:
    record = _start_record(task)
    _say(f"attempt {record.attempt}")
    task_dir = task.paths.task_dir(record.stage, record.slice_index, record.attempt)
    try:
        _write_orders(task, record, task_dir)
        end = ranks.run(task_dir)
    except StageConfigError as error:
        end = RanksEnd(
            outcome="failed", exit_code=error.exit_code, reason=str(error), retryable=False
        )
    completion = _completion(task, record, end, task_dir)
    path = task.paths.completion(
        record.stage, record.slice_index, record.attempt, completion.outcome
    )
    make_private_dir(path.parent)
    write_json_atomic(path, record_to_json(completion))
    _say(f"attempt {record.attempt} {completion.outcome}. {completion.reason}".strip())
    return completion


def _start_record(task: _Task) -> AttemptRecord:
    """Claim the next attempt number; the record exists before any work begins."""
    order, environment = task.order, task.environment
    folder = task.paths.attempts_dir(order.stage)
    make_private_dir(folder)
    names = (parse_attempt_name(path.name) for path in folder.iterdir())
    attempt = 1 + max((n[1] for n in names if n and n[0] == task.slice_index), default=0)
    while True:
        record = AttemptRecord(
            stage=order.stage,
            slice_index=task.slice_index,
            attempt=attempt,
            job_id=environment.element_id,
            token=order.token,
            fingerprint=order.fingerprint,
            started_unix_s=time.time(),
            node_names=environment.node_names,
            host=socket.gethostname(),
            pid=os.getpid(),
            num_ranks=order.resources.num_ranks,
            scheduler=order.scheduler,
            restart=environment.restart,
        )
        path = task.paths.attempt(order.stage, task.slice_index, attempt)
        if create_once(path, dump_json(record_to_json(record)).encode()):
            return record
        attempt += 1


def _write_orders(task: _Task, record: AttemptRecord, task_dir: Path) -> None:
    """What the ranks read: `context.json` and `order.json` in the attempt's folder."""
    order, environment, paths = task.order, task.environment, task.paths
    output_dir = paths.output_dir(order.stage)
    timing_dir = paths.timing_dir(order.stage, record.slice_index, record.attempt)
    for folder in (task_dir, output_dir, timing_dir, paths.logs_dir(order.stage)):
        make_private_dir(folder)
    context = TaskContext(
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
        output_dir=output_dir,
        timing_dir=timing_dir,
        task_dir=task_dir,
        node_local_dir=Path(order.node_local_dir),
        parents=order.parents,
        config=substitute_references(order.config, order.ancestor_output_dirs),
        spec_dir=Path(order.spec_dir),
        limit=order.limit,
        deadline_unix_s=environment.deadline_unix_s,
    )
    write_json_atomic(task_dir / "context.json", context_to_json(context))
    launch = {
        "shell": order.shell,
        "start_script": order.start_script,
        "cpus_per_task": order.resources.cpus_per_task,
    }
    write_json_atomic(task_dir / "order.json", launch)


def _completion(
    task: _Task, record: AttemptRecord, end: RanksEnd, task_dir: Path
) -> CompletionRecord:
    result: dict[str, Any] = {}
    if end.outcome == "completed" and result_path(task_dir, 0).exists():
        result = read_json(result_path(task_dir, 0))
    outcome: Outcome = end.outcome
    return CompletionRecord(
        stage=record.stage,
        slice_index=record.slice_index,
        attempt=record.attempt,
        job_id=record.job_id,
        outcome=outcome,
        fingerprint=task.order.fingerprint,
        started_unix_s=record.started_unix_s,
        ended_unix_s=time.time(),
        exit_code=end.exit_code,
        signal=end.signal,
        failed_rank=end.failed_rank,
        failed_node=end.failed_node,
        reason=end.reason,
        retryable=end.retryable,
        result=result,
    )


def _is_complete(task: _Task) -> bool:
    folder = task.paths.completions_dir(task.order.stage)
    if not folder.is_dir():
        return False
    for path in folder.iterdir():
        parsed = parse_completion_name(path.name)
        if parsed is None or parsed[0] != task.slice_index or parsed[2] != "completed":
            continue
        if read_json(path)["fingerprint"] == task.order.fingerprint and _is_own(task, parsed[1]):
            return True
    return False


def _is_own(task: _Task, attempt: int) -> bool:
    """Whether the attempt is one of this job's own, from before it was requeued.

    A later submit of a complete slice means to run it again.
    """
    path = task.paths.attempt(task.order.stage, task.slice_index, attempt)
    return bool(read_json(path)["token"] == task.order.token)


def _num_outcomes(task: _Task, outcome: Outcome) -> int:
    """How often this job's attempts at its slice ended so."""
    count = 0
    for path in task.paths.completions_dir(task.order.stage).iterdir():
        parsed = parse_completion_name(path.name)
        if parsed is not None and parsed[0] == task.slice_index and parsed[2] == outcome:
            count += _is_own(task, parsed[1])
    return count


def _may_retry(task: _Task) -> bool:
    failed = _num_outcomes(task, "failed")
    if failed > task.order.retries:
        _say(f"{failed} failed attempts; the stage allows {task.order.retries} retries")
        return False
    return True


def _stopped(task: _Task, ranks: Ranks) -> int:
    """Stopped and saved: near the time limit ask for a requeue; after SIGTERM Slurm decides."""
    if not ranks.stop_signalled or ranks.term_signalled:
        return STOPPED_EXIT_CODE
    restarts = _num_outcomes(task, "stopped")
    if restarts > task.order.max_requeues:
        _say(f"stopped {restarts} times; not requeued again, `slurm-jobs resume` goes on")
        return STOPPED_EXIT_CODE
    problem = requeue(task.order, task.environment)
    _say("requeued" if problem is None else f"not requeued: {problem}")
    return STOPPED_EXIT_CODE


def _say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{stamp}] slurm-jobs: {text}", file=sys.stderr, flush=True)
