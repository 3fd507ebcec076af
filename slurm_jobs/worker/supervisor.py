"""Batch process of a job or array task: fencing, signals, retries and requeue.

It processes its slices, mostly one. For each it starts the ranks, waits, and records how the
attempt ended. A failed attempt is repeated in place, up to the stage's `retries`; an attempt that
stopped on request is requeued. After a preemption, Slurm itself requeues the job.
"""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import STOPPED_EXIT_CODE, SUPERSEDED_EXIT_CODE, StageConfigError
from slurm_jobs.base.files import (
    create_once,
    dump_json,
    make_private_dir,
    read_json,
    write_json_atomic,
)
from slurm_jobs.base.processes.process_sessions import note_process
from slurm_jobs.base.texts.truncation import truncated, truncated_lines
from slurm_jobs.formats.configs.output_references import substitute_references
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    Outcome,
)
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.run_folder.gpu_kinds import kind_begun_on
from slurm_jobs.run_folder.ledger import Intent, intents, is_superseded, read_ledger
from slurm_jobs.run_folder.orders import JobOrder, read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker.after_end import remove_after_end
from slurm_jobs.worker.attempt_notes import NOT_REQUEUED, write_note
from slurm_jobs.worker.code_watch import record_used_code
from slurm_jobs.worker.fence import (
    UNREADABLE,
    await_earlier_attempts,
    is_of_older_start,
    later_claims,
)
from slurm_jobs.worker.finite_result import finite_result, not_finite_note
from slurm_jobs.worker.job_identity import (
    JobEnvironment,
    free_port,
    main_address,
    read_environment,
    requeue,
    second_address,
)
from slurm_jobs.worker.launch import RankProcesses, RanksEnd
from slurm_jobs.worker.rank import result_path


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceTask:
    """Supervision of one slice: its attempts are claimed, recorded when they end, and counted.

    A job knows its own attempts by its token. They are opened by name, because listing a folder
    that ten thousand tasks write to is slow.
    """

    order: JobOrder
    paths: RunPaths
    environment: JobEnvironment
    slice_index: int
    base_attempt: int
    """Attempts up to this number belong to earlier jobs."""
    intent_number: int = 0
    """Number of the job's intent in the ledger, which is read at least up to there."""

    def claim(self) -> AttemptRecord:
        """Claim the next attempt number; the record exists before any work begins."""
        order, environment = self.order, self.environment
        make_private_dir(self.paths.attempts_dir(order.stage))
        for attempt in itertools.count(self.base_attempt + 1):
            record = AttemptRecord(
                stage=order.stage,
                slice_index=self.slice_index,
                attempt=attempt,
                job_id=environment.element_id,
                token=order.token,
                fingerprint=order.fingerprint,
                started_unix_s=time.time(),
                node_names=environment.node_names,
                host=socket.gethostname(),
                pid=os.getpid(),
                start_ticks=note_process(os.getpid()).start_ticks,
                num_ranks=order.resources.num_ranks,
                scheduler=order.scheduler,
                restart=environment.restart,
                gpu=environment.gpu,
                num_again=order.num_again.get(self.slice_index, 0),
            )
            path = self.paths.attempt(order.stage, self.slice_index, attempt)
            if create_once(path, dump_json(record_to_json(record)).encode()):
                return record
        raise AssertionError

    def record_end(
        self, record: AttemptRecord, end: RanksEnd, result: Mapping[str, Any]
    ) -> CompletionRecord:
        """Record how an attempt ended."""
        completion = CompletionRecord(
            stage=record.stage,
            slice_index=record.slice_index,
            attempt=record.attempt,
            job_id=record.job_id,
            token=record.token,
            outcome=end.outcome,
            fingerprint=self.order.fingerprint,
            started_unix_s=record.started_unix_s,
            ended_unix_s=time.time(),
            exit_code=end.exit_code,
            signal=end.signal,
            failed_rank=end.failed_rank,
            failed_node=end.failed_node,
            reason=truncated(end.reason),
            rank_note=end.rank_note,
            last_line=end.last_line,
            retryable=end.retryable,
            kind=end.kind,
            resumes=end.resumes,
            result=finite_result(result),
            result_note=not_finite_note(result),
            stop_request=end.stop_request,
            after_sigterm=end.after_sigterm,
            used_code=self._used_code(),
        )
        path = self._completion_path(record.attempt, end.outcome)
        make_private_dir(path.parent)
        write_json_atomic(path, record_to_json(completion))
        return completion

    def _used_code(self) -> str | None:
        """Return the id of the list of files that this job's attempts used.

        A later attempt may build on files of an earlier one. Without a list the whole code counts.
        """
        numbers = self._own_attempts()
        paths, stage = self.paths, self.order.stage
        try:
            folders = [paths.task_dir(stage, self.slice_index, number) for number in numbers]
            return record_used_code(paths, stage, folders)
        except (OSError, ValueError) as error:
            _say(f"which files of your code were used is not recorded: {error}")
            return None

    def num_stops(self) -> int:
        """Return how many of this job's attempts at the slice stopped on request."""
        return sum(self._completion_path(n, "stopped").exists() for n in self._own_attempts())

    def note_refused_requeue(self, reason: str) -> None:
        """Write for `doctor` why this job's newest attempt at the slice was not requeued."""
        *_, newest = self._own_attempts()
        folder = self.paths.task_dir(self.order.stage, self.slice_index, newest)
        write_note(folder / NOT_REQUEUED, reason)

    def own_failures(self) -> list[dict[str, Any]]:
        """Return the records of this job's failures that `retries` limits.

        Failures after SIGTERM do not count: the scheduler decided whether the job runs again.
        """
        paths = (self._completion_path(n, "failed") for n in self._own_attempts())
        records = [read_json(path) for path in paths if path.exists()]
        return [record for record in records if not record["after_sigterm"]]

    def has_failed_for_good(self) -> bool:
        """Check whether this job failed too often, or once with an error that no retry can fix."""
        failures = self.own_failures()
        return len(failures) > self.order.retries or not all(f["retryable"] for f in failures)

    def is_complete(self) -> bool:
        """Check whether this job has completed the slice, before it was requeued.

        Records of earlier jobs do not count: a new submit of a complete slice means that it must
        run again.
        """
        paths = (self._completion_path(n, "completed") for n in self._own_attempts())
        return any(
            read_json(path)["fingerprint"] == self.order.fingerprint
            for path in paths
            if path.exists()
        )

    def _completion_path(self, attempt: int, outcome: Outcome) -> Path:
        name = CompletionName(self.slice_index, attempt, self.order.token, outcome)
        return self.paths.completion(self.order.stage, name)

    def _own_attempts(self) -> Iterator[int]:
        for attempt in itertools.count(self.base_attempt + 1):
            path = self.paths.attempt(self.order.stage, self.slice_index, attempt)
            if not path.exists():
                return
            if read_json(path)["token"] == self.order.token:
                yield attempt


LISTING_PATIENCE_S = 60.0
"""Time for which NFS clients may answer from a cached listing: acdirmax of nfs(5)."""
_POLL_S = 2.0


def own_intent(paths: RunPaths, token: str) -> Intent | None:
    """Return the intent `token`; None if the ledger has not shown it in `LISTING_PATIENCE_S`.

    It was in the ledger before sbatch was called. A node that does not see it reads a listing that
    its NFS client has cached. That proves nothing, least of all that the job was superseded.
    """
    end_s = time.monotonic() + LISTING_PATIENCE_S
    while True:
        is_last = time.monotonic() >= end_s
        listed = intents(read_ledger(paths.ledger_dir))
        newest = next((intent for intent in listed if intent.token == token), None)
        if newest is not None or is_last:
            return newest
        time.sleep(_POLL_S)


def slice_tasks(
    order: JobOrder, paths: RunPaths, environment: JobEnvironment, intent: Intent | None
) -> list[SliceTask]:
    """Return the slices of this job or array task, in processing order."""
    return [
        SliceTask(
            order=order,
            paths=paths,
            environment=environment,
            slice_index=index,
            base_attempt=intent.base_attempts.get(index, 0) if intent is not None else 0,
            intent_number=intent.number if intent is not None else 0,
        )
        for index in environment.slices
    ]


def supervise(run_dir: Path, token: str) -> int:
    """Run the job of intent `token` and return its exit code: 0 if every slice is complete."""
    os.umask(0o077)
    paths = RunPaths(run_dir)
    order = read_order(paths.job_json(token))
    environment = read_environment(order, os.environ)
    intent = own_intent(paths, token)
    tasks = slice_tasks(order, paths, environment, intent)
    if intent is None:  # it is unknown whether this job may work: a later one may have its slices
        reason = (
            f"this node does not see the job's own entry in {paths.ledger_dir} after "
            f"{LISTING_PATIENCE_S:.0f} s: it has an old listing of that folder, or another file "
            "system is mounted there; check the mount, then resume"
        )
        for task in tasks:
            end = RanksEnd(outcome="failed", exit_code=1, reason=reason, kind="not started")
            _say(task.record_end(task.claim(), end, {}).reason)
        return 1
    ranks = RankProcesses(order, environment)
    other_gpu = _other_gpu_of_work(order, environment)
    if other_gpu is not None:
        _requeue_to_gpu(other_gpu, order, environment)
        # Even if the requeue was refused: the work must not continue on this GPU type.
        return STOPPED_EXIT_CODE
    exit_code = 0
    to_skip = _slices_to_skip(tasks) if environment.restart else []
    for task in tasks:
        _say(f"{order.stage} slice {task.slice_index} as job {environment.element_id}")
        if task in to_skip:
            _say("this slice has failed for good; it is not tried again")
            exit_code = exit_code or 1
            continue
        code = _supervise_slice(task, ranks)
        exit_code = exit_code or code
        is_unfinished = code == STOPPED_EXIT_CODE
        are_others_left = task is not tasks[-1]
        if ranks.stop_signalled and (is_unfinished or are_others_left):
            return _requeue_stopped(task, ranks)  # the job's next start continues with them
    return exit_code


def _other_gpu_of_work(order: JobOrder, environment: JobEnvironment) -> str | None:
    """Return the requested GPU type that the work was begun on; None if it can continue here."""
    if not environment.gpu:
        return None
    paths = RunPaths(Path(order.run_dir))
    work = order.fingerprint, order.num_again
    kind = kind_begun_on(paths, order.stage, *work, environment.slices)
    if kind in {"", environment.gpu} or kind not in order.resources.gpu:
        return None
    return kind


def _requeue_to_gpu(kind: str, order: JobOrder, environment: JobEnvironment) -> None:
    """Request a requeue of the job on a GPU type, unless it was requeued too often.

    All its starts count, because this one makes no attempt at a slice.
    """
    _say(f"this is {environment.gpu}, and the work was begun on {kind}")
    if environment.restart > order.max_requeues:
        command = shlex.join(["slurm-jobs", "resume", order.run_dir])
        _say(f"not requeued again; to continue: {command}")
        return
    problem = requeue(order, environment, gpu=kind)
    _say(f"requeued, to run on {kind}" if problem is None else f"not requeued: {problem}")


def _slices_to_skip(tasks: list[SliceTask]) -> list[SliceTask]:
    """Return the slices that a requeued job skips: those that failed for good."""
    failed = [task for task in tasks if task.has_failed_for_good()]
    others = [task for task in tasks if task not in failed]
    if all(task.is_complete() for task in others):
        return []  # nothing else is left: someone requeued the job to try the failed ones again
    return failed


def _supervise_slice(task: SliceTask, ranks: RankProcesses) -> int:
    """Run attempts at one slice until it is complete, stopped, or failed; return the exit code."""
    if task.is_complete():
        _say("this slice is complete already; nothing to do")
        return 0
    while True:
        if _is_superseded(task):
            _say(_SUPERSEDED)
            return SUPERSEDED_EXIT_CODE
        record = task.claim()
        completion = _attempt(task, record, ranks)
        if completion.outcome == "superseded":
            return 0 if task.is_complete() else SUPERSEDED_EXIT_CODE
        if completion.outcome == "completed":
            return 0
        if completion.outcome == "stopped":
            return STOPPED_EXIT_CODE
        code = completion.exit_code or 1
        if ranks.stop_signalled or not completion.retryable:
            return code
        num_failures, retries = len(task.own_failures()), task.order.retries
        if num_failures > retries:
            _say(f"failed attempts: {num_failures}; retries that the stage allows: {retries}")
            return code
        if _is_fenced_off(task, record):
            _say("a later attempt at this slice has begun, so this job does not try again")
            return SUPERSEDED_EXIT_CODE
        _say("trying again")


_SUPERSEDED = "this job was superseded by a later submit, or cancelled; it does no work"


def _is_superseded(task: SliceTask) -> bool:
    entries = read_ledger(task.paths.ledger_dir, up_to=task.intent_number)
    return is_superseded(intents(entries), task.order.token, task.slice_index)


def _is_fenced_off(task: SliceTask, record: AttemptRecord) -> bool:
    """Check whether the attempt of `record` must end, because a later one takes over its slice."""
    with suppress(*UNREADABLE):  # a file system that is out of order at this moment says nothing
        return any(_takes_over(claim, task, record) for claim in later_claims(task.paths, record))
    return False


def _takes_over(claim: AttemptRecord, task: SliceTask, record: AttemptRecord) -> bool:
    """Check whether the later attempt `claim` takes over the slice from the attempt of `record`."""
    is_of_this_job = claim.token == record.token
    if is_of_this_job:
        # A claim by an older start of this job ends itself: see `is_of_older_start`.
        return claim.restart >= record.restart
    # Of two jobs, that of the older intent is superseded. If this one is not, the other one is.
    return _is_superseded(task)


def _end_before_ranks(
    task: SliceTask, record: AttemptRecord, ranks: RankProcesses
) -> RanksEnd | None:
    """Wait until no earlier attempt can write; return how this one ends if it must not start."""

    def is_called_off() -> bool:
        # A stop request calls off only an attempt that waits. Running ranks get the request
        # themselves, and save before they end.
        return ranks.stop_signalled or _is_fenced_off(task, record)

    superseded = RanksEnd(outcome="superseded", exit_code=SUPERSEDED_EXIT_CODE)
    # Again, now that the attempt is recorded: a submit may have come since the check before. If one
    # comes later, the attempt of its job is recorded after this one, so the fence notices it.
    if _is_superseded(task):
        _say(_SUPERSEDED)
        return superseded
    if is_of_older_start(task.paths, record):
        return superseded
    problem = await_earlier_attempts(task.paths, record, _say, is_called_off=is_called_off)
    if problem is not None:
        return RanksEnd(
            outcome="failed", exit_code=1, reason=problem, retryable=False, kind="not started"
        )
    # During the wait a later attempt may have claimed the slice, or an earlier start of this job,
    # which was taken for dead, may have completed it.
    if _is_fenced_off(task, record) or task.is_complete():
        _say("another attempt has taken over this slice or completed it; this one does no work")
        return superseded
    if ranks.stop_signalled:
        return RanksEnd(
            outcome="stopped",
            exit_code=STOPPED_EXIT_CODE,
            reason="Asked to stop before its ranks were started.",
            stop_request=ranks.stop_request,
        )
    return None


def _attempt(task: SliceTask, record: AttemptRecord, ranks: RankProcesses) -> CompletionRecord:
    _say(f"attempt {record.attempt}")
    early_end = _end_before_ranks(task, record, ranks)
    if early_end is not None:
        return task.record_end(record, early_end, {})
    task_dir = task.paths.task_dir(record.stage, record.slice_index, record.attempt)
    try:
        _write_launch_files(task, record, task_dir)
        end = ranks.run(task_dir, is_fenced_off=lambda: _is_fenced_off(task, record))
    except StageConfigError as error:
        end = RanksEnd(
            outcome="failed",
            exit_code=error.exit_code,
            reason=str(error),
            retryable=False,
            kind=error.kind,
        )
    result: dict[str, Any] = {}
    if end.outcome == "completed" and result_path(task_dir, 0).exists():
        result = read_json(result_path(task_dir, 0))
    completion = task.record_end(record, end, result)
    _say(f"attempt {record.attempt} {completion.outcome}. {completion.full_reason}".strip())
    if completion.outcome == "completed":
        output_dir = task.paths.output_dir(record.stage)
        if (problem := remove_after_end(output_dir, completion.result)) is not None:
            _say(f"{problem}; `slurm-jobs clean` removes it")
    return completion


def _write_launch_files(task: SliceTask, record: AttemptRecord, task_dir: Path) -> None:
    """Write `context.json` (of rank 0; others adapt it) and `order.json` (how to start ranks)."""
    order, environment, paths = task.order, task.environment, task.paths
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
    logs_dir = paths.logs_dir(order.stage)
    for folder in (task_dir, context.output_dir, context.timing_dir, logs_dir):
        make_private_dir(folder)
    write_json_atomic(task_dir / "context.json", record_to_json(context))
    launch = {
        "shell": order.shell,
        "start_script": order.start_script,
        "cpus_per_task": order.resources.cpus_per_task,
        "nsight": order.nsight,
        "num_gpus": order.resources.num_gpus,
        "second_addr": second_address(environment),
    }
    write_json_atomic(task_dir / "order.json", launch)


def _requeue_stopped(task: SliceTask, ranks: RankProcesses) -> int:
    """Request a requeue of a stopped job near the time limit; after SIGTERM Slurm decides."""
    if ranks.term_signalled:
        return STOPPED_EXIT_CODE
    # The limit is for each slice: a job with several may be requeued for each of them.
    num_stops_of_slice = task.num_stops()
    if num_stops_of_slice > task.order.max_requeues:
        command = shlex.join(["slurm-jobs", "resume", str(task.paths.run_dir)])
        refusal = f"stopped {num_stops_of_slice} times; not requeued again; to continue: {command}"
    else:
        problem = requeue(task.order, task.environment, gpu=task.environment.gpu)
        refusal = "" if problem is None else f"not requeued: {problem}"
    _say(refusal or "requeued")
    if refusal:
        task.note_refused_requeue(refusal)
    return STOPPED_EXIT_CODE


def _say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with suppress(OSError):  # the log may be on a full disk, and the work continues
        print(f"[{stamp}] slurm-jobs: {truncated_lines(text)}", file=sys.stderr, flush=True)
