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
RANK_KILL_WAIT_S = 8.0
"""Time from SIGTERM to SIGKILL for ranks that this attempt ends itself: after one has failed or
stalled, or when a later attempt waits. A job that Slurm stops has Slurm's KillWait."""
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
"""Kinds of failures that another rank's failure may cause: its peers lose it, and are ended."""
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
        """True once the job was asked to stop: by STOP_SIGNAL, by SIGTERM, or because the stage
        needs the time until the limit to stop."""
        self.term_signalled = False
        """True once SIGTERM came: cancelled, preempted, or out of time."""
        self.stop_request: StopRequest | None = None
        """What asked first; None until something does."""
        # `scancel --batch` sends REQUEST_SIGNAL here; a single rank is no step, so it gets none.
        for number in (STOP_SIGNAL, signal.SIGTERM, REQUEST_SIGNAL):
            handle(number, self._pass_on)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Note a request to stop, and pass a signal to the ranks.

        SIGTERM is passed on at once, any other when every rank can take it, see `_wait`.
        """
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
            kill_session(pid, spare=pid)  # processes of killed keepers; srun's step ends its own
        if not self._was_fenced_off:
            return self._final_end(codes)
        if self._has_killed and self._environment.is_slurm:
            self._await_exit_records()
        return RanksEnd(
            outcome="superseded",
            exit_code=SUPERSEDED_EXIT_CODE,
            reason="a later attempt at this slice has begun, so this one was ended",
        )

    def _final_end(self, exit_codes: list[int]) -> RanksEnd:
        """Return how the ranks ended, by their records and by what this process knows of it."""
        end = read_end(
            self._task_dir,
            self._num_ranks,
            exit_codes,
            was_asked=self.stop_signalled,
            has_killed=self._has_killed,
            after_sigterm=self.term_signalled,
        )
        if self.stop_request in {"stop signal", "time limit"} and is_preempted(self._environment):
            self.stop_request = "preemption"
        end = replace(self._explained(end), stop_request=self.stop_request)
        if end.outcome == "stopped":
            return replace(end, reason=_STOPPED[self.stop_request])
        if not self.term_signalled:
            return end
        if end.outcome == "completed" and self._order.shell is not None:
            # The command may have ended before SIGTERM, complete, or by it, half done.
            end = RanksEnd(
                outcome="failed",
                exit_code=TERMINATED_EXIT_CODE,
                kind="exception",
                reason=PERHAPS_HALF_DONE,
                stop_request=self.stop_request,
            )
        if end.outcome != "failed":
            return end
        return replace(end, reason=AFTER_SIGTERM + end.reason, after_sigterm=True)

    def _wait(self) -> None:
        """Pass signals on until all ranks have ended, and kill those that do not end in time."""
        kill_at_s: float | None = None
        while None in (codes := [process.poll() for process in self._processes]):
            if not self.stop_signalled and self._is_last_moment():
                self.stop_request = "time limit"
                self._pass_on(STOP_SIGNAL, None)
            # A signal that comes before a rank's keeper can handle it would end the keeper.
            while self._due and self._all_started():
                self._signal_all(self._due.pop())
            if self.term_signalled:
                self._note_ignored_end()
            if kill_at_s is not None:
                if time.monotonic() > kill_at_s:
                    self._has_killed = True
                    self._signal_all(signal.SIGKILL)
            elif self._must_make_way():
                kill_at_s = time.monotonic() + RANK_KILL_WAIT_S
                self._signal_all(signal.SIGTERM)
            elif self._ends_stalled_ranks():  # through their keepers, after `DUMP_S`
                kill_at_s = time.monotonic() + DUMP_S + RANK_KILL_WAIT_S
            elif any(codes):  # a rank has failed, and the others may wait for it without end
                kill_at_s = time.monotonic() + RANK_KILL_WAIT_S
                self._signal_all(signal.SIGTERM)
            elif self.term_signalled and not self._environment.is_slurm:
                # The ranks have got that SIGTERM. Slurm itself sends SIGKILL after a wait of its
                # own (a preempted job may have minutes to save), but the local runner may be dead.
                kill_at_s = time.monotonic() + RANK_KILL_WAIT_S
            time.sleep(POLL_S)

    def _await_exit_records(self) -> None:
        """Wait until the ranks that outlive a killed srun have recorded their ends.

        The later attempt begins once this one has recorded its end, so no rank may write after
        that. The wait takes at most half of the later attempt's patience, which began before the
        ranks were asked to end.
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

    def _ends_stalled_ranks(self) -> bool:
        """Request stacks if no rank makes progress for long; return whether the keepers end them.

        The request is a signal to the keepers. They also end their ranks if `stalled.json` exists,
        which is not written after a request to stop: then Slurm ends the job, and the cause is
        logged.
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
        """Add to a failure what the ranks were doing when they did not end or made no progress."""
        if end.outcome == "failed" and self._has_killed and self._ignored_end is not None:
            place = self._ignored_end.text
            return end if place is None else replace(end, reason=f"{end.reason}; {place}")
        if end.outcome != "completed" and self._stalled_s is not None:
            return self._hang(end, self._stalled_s)
        if end.outcome == "failed" and self._watch.has_dumped:
            cause = find_cause(self._task_dir, self._num_ranks)
            if cause is not None:
                quiet = f"no progress for {_duration(self._watch.idle_s)} before that"
                return replace(end, reason=f"{end.reason}; {quiet}: {cause.text}")
        return end

    def _hang(self, end: RanksEnd, idle_s: float) -> RanksEnd:
        """Return the failure of ranks that were ended, as in `end`, because none made progress."""
        cause = find_cause(self._task_dir, self._num_ranks)
        limit = f"stall_timeout_min allows {_duration(self._watch.patience_s)} here"
        what = cause.text if cause else end.reason
        return RanksEnd(
            outcome="failed",
            exit_code=1,
            kind="hang",
            failed_rank=cause.rank if cause else None,
            failed_node=cause.node if cause else None,
            reason=f"no progress for {_duration(idle_s)} ({limit}): {what}",
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

        The identity variables of this process are removed for srun, because the ranks that it
        starts would use them instead of their own.
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
    after_sigterm: bool = False,
) -> RanksEnd:
    """Return how the attempt in `task_dir` ended, from the records of its ranks.

    It counts as stopped only if it `was_asked` to stop, or one of its ranks was. `has_killed`: the
    supervisor has killed ranks that did not end in time, `after_sigterm` because Slurm or a user
    ended the job.
    """
    ends: dict[int, dict[str, Any]] = {}
    is_keeper_lost = False
    for rank in range(num_ranks):
        if exit_path(task_dir, rank).exists():
            ends[rank] = read_json(exit_path(task_dir, rank))
            continue
        end = _end_without_keeper(task_dir, rank)
        if end is not None:
            ends[rank] = end
            is_keeper_lost = True
    failed = [end for end in ends.values() if end["exit_code"] != 0 and not end["stopped"]]
    missing = [rank for rank in range(num_ranks) if rank not in ends]
    if failed or missing:
        failure = _first_failed(failed)
        if failure is None:
            failure = _missing(
                task_dir, missing[0], num_ranks, exit_codes, is_killed=has_killed and after_sigterm
            )
        elif missing and failure.kind == "collective" and not has_killed:
            peer = _missing(task_dir, missing[0], num_ranks, exit_codes)
            failure = replace(failure, reason=f"{failure.reason}; {peer.reason}")
        # A record that is still there names the rows that a killed process worked on.
        rows = rows_in_progress(task_dir)
        return replace(failure, reason=f"{failure.reason}; {rows}") if rows else failure
    stopped = [end for end in ends.values() if end["stopped"]]
    if stopped:
        was_rank_asked = any(end["asked"] for end in ends.values())
        return _stopped_end(stopped, was_asked=was_asked or was_rank_asked)
    if any(exit_codes) and not is_keeper_lost:  # a lost keeper already explains a nonzero code
        code = _shell_exit_code(exit_codes)
        reason = f"All ranks ended well, but the step ended with exit code {code}."
        return RanksEnd(outcome="failed", exit_code=code, reason=reason, kind="exit code")
    return _completed_end([end for end in ends.values() if end.get("note")])


def _stopped_end(stopped: Sequence[Mapping[str, Any]], *, was_asked: bool) -> RanksEnd:
    if was_asked:
        return RanksEnd(outcome="stopped", exit_code=STOPPED_EXIT_CODE, reason="Stopped and saved.")
    unasked = _failed(min(stopped, key=lambda end: end["ended_unix_s"]))
    reason = f"{unasked.reason} (stopped and saved), and was not asked to stop"
    return replace(unasked, reason=reason)


def _completed_end(late: Sequence[Mapping[str, Any]]) -> RanksEnd:
    """Return the outcome of ranks that all ended well.

    Args:
        late: ends of those whose process outlived its function, with a note of what kept it.
    """
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


def _end_without_keeper(task_dir: Path, rank: int) -> dict[str, Any] | None:
    """Return the end of a rank that has no exit record, because its keeper was killed.

    It is as the rank recorded it when its function returned; None if it did not record that.
    """
    returned = read_returned(task_dir, rank)
    if returned is None or not started_path(task_dir, rank).exists():
        return None
    code, error = returned["exit_code"], error_path(task_dir, rank)
    if code == 0 and not result_path(task_dir, rank).exists():
        return None  # the function did not return, but called sys.exit(0): that is no success
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
    """Return the failure of the rank that failed first; None if `failed` is empty.

    If that rank's failure is a failed collective, the cause is an exception that another rank had
    raised before the process of the first one ended: peers may end before the rank whose connection
    they lose. An exception after that end may come from the signals that end the other ranks.
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


def _shell_exit_code(exit_codes: list[int]) -> int:
    """Return the first nonzero code as a shell shows it (128 + n for signal n); 1 if none."""
    code = next((code for code in exit_codes if code), 1)
    return code if code > 0 else 128 - code


def _missing(
    task_dir: Path,
    rank: int,
    num_ranks: int,
    exit_codes: list[int],
    *,
    is_killed: bool = False,
) -> RanksEnd:
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
        if is_killed:
            limit = f"{RANK_KILL_WAIT_S:g} s"
            reason = f"{rank_place(rank, node)} did not end within {limit}, and was killed"
        kind = "gone"
    elif len(exit_codes) == num_ranks:  # this process itself started the keepers
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
        exit_code=_shell_exit_code(exit_codes),
        failed_rank=rank,
        failed_node=node,
        reason=reason,
        kind=kind,
    )
