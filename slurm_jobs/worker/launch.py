"""Start of an attempt's ranks, forwarding of signals, and search for the first failed rank.

Under Slurm several ranks are one srun step. A single rank, and every rank of the local scheduler,
is a child of the supervisor. The exit records of the ranks' keepers decide the outcome, not srun's
exit code alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from slurm_jobs.base.errors import STOPPED_EXIT_CODE, SUPERSEDED_EXIT_CODE
from slurm_jobs.base.failure_kinds import FailureKind
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.base.processes.process_sessions import kill_session
from slurm_jobs.base.processes.python_commands import script_command
from slurm_jobs.base.processes.signal_handlers import handle
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL, noted_stop_time_s
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.records.attempt_records import AFTER_SIGTERM, Outcome, StopRequest
from slurm_jobs.formats.records.failure_reason import rank_place
from slurm_jobs.formats.records.job_resources import near_gpus
from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.formats.records.rows_in_progress import rows_in_progress
from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.schedulers.slurm_environment import step_environment
from slurm_jobs.worker.fence import FENCE_PATIENCE_S, FENCE_POLL_S
from slurm_jobs.worker.hangs import DUMP_S, StallWatch, find_cause, stalled_path
from slurm_jobs.worker.ignored_end import IgnoredEnd
from slurm_jobs.worker.job_identity import RANK_VARIABLES, JobEnvironment, is_preempted
from slurm_jobs.worker.late_exit import read_returned
from slurm_jobs.worker.rank import (
    PERHAPS_HALF_DONE,
    TERMINATED_EXIT_CODE,
    asked_path,
    context_path,
    error_path,
    exit_path,
    result_path,
    started_path,
)
from slurm_jobs.worker.stacks import REQUEST_SIGNAL

STOP_TIME_FACTOR = 1.5
"""Ranks are asked to stop this many times their measured stopping time before the limit."""
STOP_TIME_LOOK_S = 1.0
KILL_WAIT_S = 8.0
"""Time that the other ranks may take to end after one has failed."""
POLL_S = 0.05
_EARLY_SIGNAL_S = 90.0
"""Slurm may send the stop signal a minute earlier than `signal_lead_s` says (sbatch(1), --signal),
and clocks of nodes differ."""
_STOPPED: Mapping[StopRequest | None, str] = {
    "time limit": "Stopped and saved, because its time limit came near.",
    "preemption": "Stopped and saved, because Slurm preempts its job.",
    "stop signal": "Stopped and saved, because it got the stop signal long before its time limit.",
    "sigterm": "Stopped and saved after SIGTERM (cancel, requeue, preemption or time limit).",
    None: "Stopped and saved.",
}
_EFFECTS: frozenset[FailureKind | None] = frozenset({"collective", "killed", "exit code"})
"""Kinds that the failure of another rank may have: its peers lose it, and are ended."""
GONE = "(its node or its keeper is gone)"
SHELL_CODES = {126: "a command could not be executed", 127: "a command was not found"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RanksEnd:
    """Outcome of all ranks of an attempt."""

    outcome: Outcome
    exit_code: int = 0
    signal: int | None = None
    failed_rank: int | None = None
    failed_node: str | None = None
    reason: str = ""
    rank_note: RankNote | None = None
    """Rank whose process outlived its function, if all completed; then the reason is its text."""
    last_line: str | None = None
    """Last line of the log of the rank that failed first, if only its output says why."""
    retryable: bool = True
    kind: FailureKind | None = None
    """Kind of the failure; None if they did not fail."""
    resumes: tuple[tuple[str, ...], ...] = ()
    """Arguments of `slurm-jobs resume RUN` that the failed function names, the best first."""
    stop_request: StopRequest | None = None
    after_sigterm: bool = False
    """True if they failed after SIGTERM from outside."""


class RankProcesses:
    """Ranks of one job or array task, over its attempts."""

    def __init__(self, order: JobOrder, environment: JobEnvironment) -> None:
        self._order = order
        self._num_ranks = order.resources.num_ranks
        self._environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._due: set[int] = set()
        """Signals that have not been passed on."""
        self._look_at_s = 0.0
        """Time of the next check of the stage's notes, monotonic."""
        self.stop_signalled = False
        """True if STOP_SIGNAL came, or the stage's measured stopping time is reached: the time
        limit is near."""
        self.term_signalled = False
        """True if SIGTERM came: cancelled, preempted, or out of time."""
        self.stop_request: StopRequest | None = None
        """What asked first; None until something does."""
        # `scancel --batch` sends REQUEST_SIGNAL here; a single rank is no step, so it gets none.
        for number in (STOP_SIGNAL, signal.SIGTERM, REQUEST_SIGNAL):
            handle(number, self._pass_on)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Pass SIGTERM on at once, and others when every rank can take them, see `_wait`."""
        if number != REQUEST_SIGNAL:
            self.stop_signalled = True
            self.stop_request = self.stop_request or self._stop_request_of(number)
        if number == signal.SIGTERM:
            self.term_signalled = True
            self._signal_all(signal.SIGTERM)
        else:
            self._due.add(number)

    def _stop_request_of(self, number: int) -> StopRequest:
        if number == signal.SIGTERM:
            return "sigterm"
        left_s = self._environment.deadline_unix_s - time.time()
        is_near = left_s <= self._order.resources.lead_s + _EARLY_SIGNAL_S
        return "time limit" if is_near else "stop signal"

    def run(self, task_dir: Path, *, is_fenced_off: Callable[[], bool] = lambda: False) -> RanksEnd:
        """Start the ranks, wait for all of them, and return the outcome.

        `is_fenced_off` returns whether a later attempt waits for this one to end.
        """
        self._task_dir = task_dir
        self._is_fenced_off = is_fenced_off
        self._fence_at_s = time.monotonic() + FENCE_POLL_S
        self._was_fenced_off = False
        self._processes = []
        self._has_killed = False
        self._stalled_s: float | None = None
        self._say_cause_at_s: float | None = None
        """Time by which the ranks have written the requested stacks, monotonic."""
        self._watch = StallWatch(task_dir, self._num_ranks)
        self._ignored_end: IgnoredEnd | None = None
        keeper = script_command(self._order.start_script, "rank", task_dir)
        if self._environment.is_slurm and self._num_ranks > 1:
            starts = [([*self._srun(), *keeper], self._variables(None))]
        else:
            starts = [(keeper, self._variables(rank)) for rank in range(self._num_ranks)]
        for command, variables in starts:
            self._processes.append(subprocess.Popen(command, env=variables))
        if self.term_signalled:  # the signal came during their start
            self._signal_all(signal.SIGTERM)
        self._wait()
        codes = [process.returncode for process in self._processes]
        pid = os.getpid()
        if -signal.SIGKILL in codes and not self._environment.is_slurm and os.getsid(0) == pid:
            kill_session(pid, spare=pid)  # what killed keepers left; under Slurm the step does this
        if self._was_fenced_off and self._has_killed and self._environment.is_slurm:
            self._await_exit_records()
        end = read_end(
            task_dir,
            self._num_ranks,
            codes,
            was_asked=self.stop_signalled,
            has_killed=self._has_killed,
        )
        end = self._explained(end)
        if self._was_fenced_off:
            return RanksEnd(
                outcome="superseded",
                exit_code=SUPERSEDED_EXIT_CODE,
                reason="a later attempt at this slice has begun, so this one was ended",
            )
        if self.stop_request in {"stop signal", "time limit"} and is_preempted(self._environment):
            self.stop_request = "preemption"
        reason = _STOPPED[self.stop_request] if end.outcome == "stopped" else end.reason
        end = replace(end, reason=reason, stop_request=self.stop_request)
        if self.term_signalled and end.outcome == "completed" and self._order.shell is not None:
            # The rank ended just before the signal reached its keeper, if not before the signal.
            end = RanksEnd(
                outcome="failed",
                exit_code=TERMINATED_EXIT_CODE,
                kind="exception",
                reason=PERHAPS_HALF_DONE,
                stop_request=self.stop_request,
            )
        if self.term_signalled and end.outcome == "failed":
            reason = end.reason
            if self._has_killed and end.kind == "gone":
                killed = f"did not end within {KILL_WAIT_S:g} s, and was killed"
                reason = reason.replace(f"ended without a record {GONE}", killed)
            return replace(end, reason=AFTER_SIGTERM + reason, after_sigterm=True)
        return end

    def _wait(self) -> None:
        """Wait for all ranks; after a failure send the others SIGTERM, then SIGKILL.

        A signal that arrives before a rank's keeper can handle it would end the keeper. After a
        SIGTERM from outside Slurm sends SIGKILL after its own wait (a preempted job may have
        minutes to save). The local runner may be dead, so its tasks get it from here.
        """
        kill_at_s: float | None = None
        while None in (codes := [process.poll() for process in self._processes]):
            if not self.stop_signalled and self._is_last_moment():
                self.stop_request = "time limit"
                self._pass_on(STOP_SIGNAL, None)
            while self._due and self._all_started():
                self._signal_all(self._due.pop())
            if self.term_signalled:
                self._note_ignored_end()
            if kill_at_s is None:
                if self._must_make_way():
                    kill_at_s = time.monotonic() + KILL_WAIT_S
                    self._signal_all(signal.SIGTERM)
                elif self._is_stalled():
                    kill_at_s = time.monotonic() + DUMP_S + KILL_WAIT_S
                elif any(codes):
                    kill_at_s = time.monotonic() + KILL_WAIT_S
                    self._signal_all(signal.SIGTERM)
                elif self.term_signalled and not self._environment.is_slurm:
                    kill_at_s = time.monotonic() + KILL_WAIT_S
            elif time.monotonic() > kill_at_s:
                self._has_killed = True
                self._signal_all(signal.SIGKILL)
            time.sleep(POLL_S)

    def _await_exit_records(self) -> None:
        """Wait for ranks that outlive a killed srun: the record of the end lets the later begin.

        Half of the later attempt's patience, which began before the ranks were asked to end.
        """
        end_s = time.monotonic() + FENCE_PATIENCE_S / 2
        ranks = [r for r in range(self._num_ranks) if started_path(self._task_dir, r).exists()]
        while time.monotonic() < end_s:
            if all(exit_path(self._task_dir, rank).exists() for rank in ranks):
                return
            time.sleep(POLL_S)

    def _note_ignored_end(self) -> None:
        """Note where the stage is if it does not end after SIGTERM.

        A shell command has no stacks. Ranks with a heartbeat are watched by it: they may be saving.
        """
        if self._order.shell is not None or self._watch.has_beats:
            return
        if self._ignored_end is None:
            self._ignored_end = IgnoredEnd(self._task_dir, self._num_ranks)
        if self._ignored_end.asks_for_stacks() and self._all_started():
            self._signal_all(REQUEST_SIGNAL)
        if self._ignored_end.finds_place():
            with suppress(OSError):  # the log may be on a full disk
                print(f"slurm-jobs: {self._ignored_end.text}", file=sys.stderr, flush=True)

    def _must_make_way(self) -> bool:
        """Check at times whether a later attempt waits for this one to end."""
        if time.monotonic() < self._fence_at_s:
            return False
        self._fence_at_s = time.monotonic() + FENCE_POLL_S
        self._was_fenced_off = self._is_fenced_off()
        return self._was_fenced_off

    def _is_stalled(self) -> bool:
        """Request stacks if no rank makes progress for long; return whether to end the ranks.

        A file asks the keepers to have stacks written, and to end their ranks. After a request to
        stop they only write stacks, and the cause is logged: Slurm ends the job.
        """
        # In an array of thousands of tasks no heartbeat is expected, because each task would poll a
        # shared folder.
        is_own_function = ":" in self._order.run and self._num_ranks > 1
        if self._order.run != "train" and not is_own_function:
            return False
        self._say_cause()
        alarm = self._watch.tick(may_end=not self.stop_signalled)
        if alarm is None or not self._all_started():
            return False
        if alarm == "end":
            self._stalled_s = self._watch.idle_s
            write_json_atomic(stalled_path(self._task_dir), {"idle_s": self._watch.idle_s})
        self._say_cause_at_s = time.monotonic() + DUMP_S if self.stop_signalled else None
        self._signal_all(REQUEST_SIGNAL)
        return alarm == "end"

    def _say_cause(self) -> None:
        """Print which rank the others wait for, once they have written their stacks.

        Slurm may kill this process together with the ranks, so that no record would contain it.
        """
        if self._say_cause_at_s is None or time.monotonic() < self._say_cause_at_s:
            return
        self._say_cause_at_s = None
        cause = find_cause(self._task_dir, self._num_ranks)
        if cause is not None and self._watch.has_dumped:
            quiet = _duration(self._watch.idle_s)
            with suppress(OSError):  # the log may be on a full disk
                text = f"slurm-jobs: no progress for {quiet} after the request to stop"
                print(f"{text}: {cause.text}", file=sys.stderr, flush=True)

    def _explained(self, end: RanksEnd) -> RanksEnd:
        """Add the rank that the others waited for, if that ended the attempt.

        Of a stage that was killed after SIGTERM, the place is added.
        """
        if end.outcome == "failed" and self._has_killed and self._ignored_end is not None:
            place = self._ignored_end.text
            return end if place is None else replace(end, reason=f"{end.reason}; {place}")
        is_stalled = self._stalled_s is not None
        if end.outcome == "completed" or not (is_stalled or self._watch.has_dumped):
            return end
        cause = find_cause(self._task_dir, self._num_ranks)
        quiet = _duration(self._stalled_s or self._watch.idle_s)
        if is_stalled:
            limit = f"stall_timeout_min allows {_duration(self._watch.patience_s)} here"
            return RanksEnd(
                outcome="failed",
                exit_code=1,
                kind="hang",
                failed_rank=cause.rank if cause else None,
                failed_node=cause.node if cause else None,
                reason=f"no progress for {quiet} ({limit}): {cause.text if cause else end.reason}",
            )
        if cause is None or end.outcome != "failed":
            return end
        return replace(
            end, reason=f"{end.reason}; no progress for {quiet} before that: {cause.text}"
        )

    def _is_last_moment(self) -> bool:
        """Check whether the remaining time is what the stage needs to stop, by its own measure.

        Never in the first half of the limit, as with `signal_lead_s`: work must make progress.
        """
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + STOP_TIME_LOOK_S
        left_s = self._environment.deadline_unix_s - time.time() - STOP_TIME_LOOK_S
        half_s = self._order.resources.timeout_min * 60 / 2
        return left_s < min(STOP_TIME_FACTOR * noted_stop_time_s(self._task_dir), half_s)

    def _signal_all(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def _all_started(self) -> bool:
        return all(started_path(self._task_dir, rank).exists() for rank in range(self._num_ranks))

    def _srun(self) -> list[str]:
        resources = self._order.resources
        return [
            "srun",
            f"--nodes={resources.nodes}",
            f"--ntasks={resources.num_ranks}",
            f"--ntasks-per-node={resources.tasks_per_node}",
            f"--cpus-per-task={resources.cpus_per_task}",  # not inherited since Slurm 22.05
            *near_gpus(resources),
            "--export=ALL",  # independent of the batch job's options
            "--kill-on-bad-exit=1",
            "--unbuffered",
            f"--job-name={self._order.stage}",
        ]

    def _variables(self, rank: int | None) -> dict[str, str]:
        """Return the environment of rank `rank` or of a step's srun.

        Ranks of srun would prefer inherited identity variables to those of srun.
        """
        options = {key.replace("_", "-") for key in self._order.resources.slurm}
        variables = step_environment(os.environ, self._order.environment, options)
        inherited = {name: value for name, value in variables.items() if name not in RANK_VARIABLES}
        inherited["SLURM_JOBS_ENTRY_POINT"] = self._order.run
        if rank is None:
            return inherited
        node_rank, local_rank = divmod(rank, self._order.resources.tasks_per_node)
        names = self._environment.node_names
        node_name = names[min(node_rank, len(names) - 1)]
        who = (str(rank), str(local_rank), str(node_rank), node_name)
        return {**inherited, **dict(zip(RANK_VARIABLES, who, strict=True))}


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:.3g} min"


def read_end(
    task_dir: Path,
    num_ranks: int,
    exit_codes: list[int],
    *,
    was_asked: bool = False,
    has_killed: bool = False,
) -> RanksEnd:
    """Return how the attempt in `task_dir` ended, from the records of its ranks.

    It counts as stopped only if it `was_asked` to stop, or one of its ranks was. `has_killed`: the
    supervisor has killed ranks that did not end after another one had failed.
    """
    ends = {
        rank: read_json(exit_path(task_dir, rank))
        for rank in range(num_ranks)
        if exit_path(task_dir, rank).exists()
    }
    for rank in range(num_ranks):
        if rank not in ends and (end := _without_keeper(task_dir, rank)) is not None:
            ends[rank] = end
            exit_codes = [0]  # of srun or the keeper, whose death is explained
    failed = [e for e in ends.values() if e["exit_code"] != 0 and not e["stopped"]]
    missing = [rank for rank in range(num_ranks) if rank not in ends]
    if failed or missing:
        failure = _first_failed(failed)
        if failure is None:
            failure = _missing(task_dir, missing[0], num_ranks, exit_codes)
        elif missing and failure.kind == "collective" and not has_killed:
            peer = _missing(task_dir, missing[0], num_ranks, exit_codes)
            failure = replace(failure, reason=f"{failure.reason}; {peer.reason}")
        # A process that exits removes the record of the rows that it works on.
        rows = rows_in_progress(task_dir)
        return replace(failure, reason=f"{failure.reason}; {rows}") if rows else failure
    stopped = [end for end in ends.values() if end["stopped"]]
    if stopped and not (was_asked or any(end.get("asked", True) for end in ends.values())):
        unasked = _failed(min(stopped, key=lambda e: e["ended_unix_s"]))
        reason = f"{unasked.reason} (stopped and saved), and was not asked to stop"
        return replace(unasked, reason=reason)
    if stopped:
        return RanksEnd(outcome="stopped", exit_code=STOPPED_EXIT_CODE, reason="Stopped and saved.")
    if any(exit_codes):  # all ranks ended well, but srun reports an error: show it
        code = _first_failure(exit_codes)
        reason = f"All ranks ended well, but the step ended with exit code {code}."
        return RanksEnd(outcome="failed", exit_code=code, reason=reason, kind="exit code")
    late = [end for end in ends.values() if end.get("note")]  # whose process outlived its function
    if not late:
        return RanksEnd(outcome="completed")
    more = f" (and {len(late) - 1} more rank{'s' if len(late) > 2 else ''})"
    note = RankNote(
        rank=late[0]["rank"],
        node=late[0]["node"],
        after=truncated(f": {late[0]['note']}"),
        more=more if len(late) > 1 else "",
    )
    return RanksEnd(outcome="completed", reason=note.text, rank_note=note)


def _without_keeper(task_dir: Path, rank: int) -> dict[str, Any] | None:
    """Return the end of a rank without exit record, from the recorded outcome of its function."""
    returned = read_returned(task_dir, rank)
    if returned is None or not started_path(task_dir, rank).exists():
        return None
    code, error = returned["exit_code"], error_path(task_dir, rank)
    if code == 0 and not result_path(task_dir, rank).exists():  # sys.exit(0)
        return None
    return {
        "rank": rank,
        "node": read_json(started_path(task_dir, rank))["node"],
        "exit_code": code,
        "signal": None,
        "stopped": code == STOPPED_EXIT_CODE,
        "asked": asked_path(task_dir, rank).exists(),
        "ended_unix_s": returned["returned_unix_s"],
        "error": read_json(error) if error.exists() else None,
        "note": "its function had returned before its process and its keeper were killed",
    }


def _first_failed(failed: Sequence[Mapping[str, Any]]) -> RanksEnd | None:
    """Return the failure of the rank that failed first; None if none of them has a record.

    If that is a failed collective, an exception that another rank raised before its process had
    ended is the cause: the peers of a rank notice a lost connection first. Later ones may come from
    the signals that end the other ranks.
    """
    in_order = sorted(failed, key=lambda end: end["ended_unix_s"])
    if not in_order:
        return None
    first = _failed(in_order[0])
    if first.kind == "collective":
        for end in in_order[1:]:
            other, error = _failed(end), end["error"]
            raised_unix_s = end["ended_unix_s"] if error is None else error["raised_unix_s"]
            if other.kind not in _EFFECTS and raised_unix_s <= in_order[0]["ended_unix_s"]:
                return other
    return first


def _failed(end: Mapping[str, Any]) -> RanksEnd:
    error, code, number = end["error"], end["exit_code"], end["signal"]
    reason = rank_place(end["rank"], end["node"])
    if error is not None:
        message = error["message"].strip().splitlines() or [""]
        reason += f": {error['type']}: {message[0]}"
        kind: FailureKind = error["kind"]
    else:
        kind = "exit code" if number is None else "killed"
        reason += f" {_how_ended(code if number is None else -number)}"
        if code in SHELL_CODES:
            reason += f" (in a shell: {SHELL_CODES[code]})"
            kind = "missing command"
    return RanksEnd(
        outcome="failed",
        exit_code=code,
        signal=number,
        failed_rank=end["rank"],
        failed_node=end["node"],
        reason=reason,
        last_line=end.get("last_line"),
        retryable=error["retryable"] if error is not None else True,
        kind=kind,
        resumes=tuple(map(tuple, error["resumes"])) if error is not None else (),
    )


def _how_ended(code: int) -> str:
    """Return how a process ended with an exit code that is negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):  # a real-time signal has no name
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _first_failure(exit_codes: list[int]) -> int:
    """Return the first nonzero code as a shell shows it (128 + n for signal n); 1 if none."""
    code = next((code for code in exit_codes if code), 1)
    return code if code > 0 else 128 - code


def _missing(task_dir: Path, rank: int, num_ranks: int, exit_codes: list[int]) -> RanksEnd:
    """Return the outcome for a rank without an exit record, whose keeper or node is gone.

    A keeper that the supervisor started itself has run, and its exit code is known. Of a keeper
    that srun was to start nothing is known unless it wrote the rank's context.
    """
    node = None
    kind: FailureKind = "not started"
    keeper, srun = f"the keeper of rank {rank}", f"(srun ended with exit code {exit_codes[0]})"
    if started_path(task_dir, rank).exists():
        node = read_json(started_path(task_dir, rank))["node"]
        reason = f"{rank_place(rank, node)} ended without a record {GONE}"
        kind = "gone"
    elif len(exit_codes) == num_ranks:
        how = _how_ended(exit_codes[rank])
        reason = f"{keeper} {how} before it had noted the rank's start"
    elif context_path(task_dir, rank).exists():
        reason = f"{keeper} started and was gone before it had noted the rank's start {srun}"
    else:
        reason = (
            f"rank {rank} has left no sign: srun did not start its keeper, or that was gone at "
            f"once {srun}"
        )
    return RanksEnd(
        outcome="failed",
        exit_code=_first_failure(exit_codes),
        failed_rank=rank,
        failed_node=node,
        reason=reason,
        kind=kind,
    )
