"""Verbs submit, run and watch, with the live view of a run."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import (
    add_json,
    add_run,
    add_spec,
    command_text,
    print_json,
    short_note,
    shown_path,
)
from slurm_jobs.cli.problems import FailedAttempt, source_lines
from slurm_jobs.cli.status import (
    STYLES,
    Seen,
    grid_lines,
    legend,
    look,
    make_grid,
    reason_to_wait,
    stages_table,
    tasks_text,
    title_text,
)
from slurm_jobs.run.observe import in_doubt, looks_until_over
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.status import RunStatus, StageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, Group
    from rich.text import Text

    from slurm_jobs.cli.problems import Failure
    from slurm_jobs.commands.submit import Submission
    from slurm_jobs.run.submission import SubmittedJob
    from slurm_jobs.status import Status


# Watching of a run until it ends: a live view on a terminal, lines of changes elsewhere.
#
# It only reads: an interrupt ends the watching, never the run.


PROGRESS_INTERVAL_S = 30.0
"""Interval between lines that only report progress."""


def follow(run_dir: Path, *, quiet: bool, tells_failures: bool = True) -> RunStatus | None:
    """Watch until the run ends; None, after a message, if the user interrupted.

    Args:
        run_dir: the run's folder.
        quiet: show nothing.
        tells_failures: leave on the screen which slices failed; False if the caller prints them
            at the end, and only their number is shown until then.
    """
    from slurm_jobs.cli.options import page_console

    console = page_console()
    try:
        if quiet:
            (last,) = deque(_looks(run_dir), maxlen=1)
            return last.status
        if console.is_terminal and not console.is_dumb_terminal:
            return _follow_live(run_dir, console, keeps_failure=tells_failures)
        return _follow_lines(run_dir, tells_failures=tells_failures)
    except KeyboardInterrupt:
        folder = shown_path(run_dir)
        print(
            f"\nno longer watching; the run continues.\nnext: {command_text('status', folder)}\n"
            f"  or: {command_text('cancel', folder)}",
            file=sys.stderr,
        )
        return None


def _looks(
    run_dir: Path, *, with_failure: bool = False, told: Collection[FailedAttempt] | None = None
) -> Iterator[Seen]:
    scheduler = read_meta(RunPaths(run_dir)).scheduler
    return looks_until_over(
        lambda: look(run_dir, with_failure=with_failure, told=told),
        lambda seen: seen.status,
        lambda seen, problem: replace(seen, status=in_doubt(seen.status, problem)),
        scheduler,
    )


def _follow_live(run_dir: Path, console: Console, *, keeps_failure: bool) -> RunStatus:
    from rich.live import Live

    looks = _looks(run_dir, with_failure=True)
    seen, ended = next(looks), False
    # Drawn by a thread once a second, so that ages grow during a query.
    with Live(
        get_renderable=lambda: live_view(seen, console, now_unix_s=time.time(), is_over=ended),
        console=console,
        refresh_per_second=1,
    ) as live:
        live.refresh()
        for seen in looks:  # noqa: B007 - the function above shows it
            live.refresh()
        ended = True
        if not keeps_failure:
            seen = replace(seen, failure=None)
    return seen.status


def _follow_lines(run_dir: Path, *, tells_failures: bool) -> RunStatus:
    shown: dict[str, str] = {}
    told: set[FailedAttempt] = set()
    began_s = time.monotonic()
    last_progress_s = began_s
    for seen in _looks(run_dir, told=told if tells_failures else None):
        now_s = time.monotonic()
        is_time = now_s - last_progress_s > PROGRESS_INTERVAL_S
        last_progress_s = now_s if is_time else last_progress_s
        lines = lines_of(seen)
        changes = []
        for name, line in lines.items():
            progress = seen.progress.get(name, "") if is_time else ""
            if shown.get(name) != line or progress:
                changes.append(f"{line} {progress}".rstrip())
        if not told.issuperset(seen.new_failures.attempts):  # otherwise it repeats the last one
            changes += seen.new_failures.lines
        told |= seen.new_failures.attempts
        for change in changes:
            print(f"[{now_s - began_s:6.1f} s] {change}", flush=True)
        shown = lines
    return seen.status


def lines_of(seen: Seen) -> dict[str, str]:
    """Return a line for each stage, and for each source that does not answer."""
    lines = {stage.stage.name: _stage_line(stage) for stage in seen.status.stages}
    lines |= {f"source {number}": text for number, text in enumerate(source_lines(seen.status))}
    return lines


def _stage_line(stage: StageStatus) -> str:
    """Return `train: running (0/1, 1 running)`; with the reason for stranded stages."""
    is_stuck = stage.status == "stranded" or any(part.wait for part in stage.slices)
    why = reason_to_wait(stage) if is_stuck else ""
    return f"{stage.stage.name}: {stage.status} ({tasks_text(stage)})" + (f": {why}" if why else "")


# Live view of `watch` and `run` on a terminal: stages, grids, the last failure. Layout only.
#
# It fits the screen for any number of slices: grids are condensed, and the least important parts
# are omitted first (grids of arrays with one status, then lines of the log's tail).


MAX_GRID_ROWS = 20
"""Rows for one array; more do not help to find failures."""
MIN_GRID_LINES = 3
"""A heading, a row, a legend."""
MIN_FAILURE_LINES = 5
"""Lines for the failure, the log's name, and three lines of its end."""
MAX_WRAPPED_LINES = 3
"""Lines of a reason that is longer than a line."""
MIN_BAR, MAX_BAR = 10, 40
"""Characters of a bar."""
FOOTER = "Ctrl-C ends the watching, not the run"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Escape sequences, and other characters that would move the cursor."""


def live_view(seen: Seen, console: Console, *, now_unix_s: float, is_over: bool) -> Group:
    """Return the whole view, no wider and no higher than the console."""
    from rich.console import Group

    width, height = console.size
    head = Group(
        title_text(seen, now_unix_s), stages_table(seen, now_unix_s=now_unix_s, width=width)
    )
    sources = [
        line
        for text in source_lines(seen.status)
        for line in _wrapped(text, "yellow", console)[:MAX_WRAPPED_LINES]
    ]
    num_head_lines = len(console.render_lines(head, pad=False))
    room = max(0, height - num_head_lines - len(sources) - 2)  # for footer and cursor
    bars = bar_lines(seen.shares, width=width)[: room // MIN_GRID_LINES]
    room -= len(bars)
    arrays = [stage for stage in seen.status.stages if _is_worth_a_grid(stage)]
    for_failure = min(room, max(MIN_FAILURE_LINES, room - MIN_GRID_LINES * len(arrays)))
    failure = failure_lines(seen.failure, console, max_lines=for_failure)
    grids = array_lines(arrays, width=width, room=room - len(failure))
    footer = [] if is_over else [_line(FOOTER, "dim")]
    return Group(head, *bars, *sources, *grids, *failure, *footer)


def bar_lines(shares: Mapping[str, float], *, width: int) -> list[Text]:
    """Return a progress bar for each stage, distinguishable without colour."""
    longest = max(map(len, shares), default=0)
    length = min(MAX_BAR, width - longest - len(" [] 100 %"))
    if length < MIN_BAR:
        return []
    lines = []
    for name, share in shares.items():
        done = int(length * min(1.0, share))
        bar = f"{'#' * done}{'.' * (length - done)}"
        lines.append(_line(f"{name:{longest}} [{bar}] {int(100 * share):3d} %", "cyan"))
    return lines


def _line(text: str, style: str = "") -> Text:
    """Return one line of the screen, cut if it is too long."""
    from rich.text import Text

    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _wrapped(text: str, style: str, console: Console) -> list[Text]:
    """Wrap a text into lines of the screen."""
    from rich.text import Text

    return list(Text(printable(text), style=style).wrap(console, console.width))


def printable(line: str) -> str:
    """Remove from a log line what would move the cursor; of a progress bar keep the last state."""
    states = [state for state in line.split("\r") if state.strip()]
    return _CONTROLS.sub("", states[-1] if states else "").expandtabs(4)


def _is_worth_a_grid(stage: StageStatus) -> bool:
    """Check for an array whose slices are neither all waiting nor all complete."""
    alike: tuple[set[Status], ...] = ({"waiting"}, {"completed"}, {"stranded"})
    return stage.stage.num_slices > 1 and set(stage.counts) not in alike


def array_lines(arrays: list[StageStatus], *, width: int, room: int) -> list[Text]:
    """Return a heading, the grid and its legend for each array, as many as fit."""
    lines: list[Text] = []
    for number, stage in enumerate(arrays):
        share = (room - len(lines)) // (len(arrays) - number)
        if share < MIN_GRID_LINES:
            continue
        max_rows = min(MAX_GRID_ROWS, share - MIN_GRID_LINES + 1)
        statuses = [part.status for part in stage.slices]
        grid = make_grid(statuses, width=width, max_rows=max_rows)
        heading = f"{stage.stage.name}: {stage.stage.num_slices} slices"
        lines.append(_line(heading, STYLES[stage.status]))
        lines += grid_lines(statuses, width=width, max_rows=max_rows)
        lines.append(legend(statuses, slices_per_cell=grid.slices_per_cell))
    return lines


def failure_lines(failure: Failure | None, console: Console, *, max_lines: int) -> list[Text]:
    """Return the last failure: what and why, which log, and its end."""
    if failure is None:
        return []
    lines = _wrapped(f"last failure: {failure.line}", STYLES["failed"], console)
    lines = lines[:MAX_WRAPPED_LINES]
    if failure.log is not None:
        lines.append(_line(f"{failure.log.name} ends with:", "dim"))
        kept = max(0, max_lines - len(lines))
        lines += [_line(f"  {text}") for text in failure.tail[max(0, len(failure.tail) - kept) :]]
    return lines[:max_lines]


# `slurm-jobs submit SPEC`: submit all jobs of a spec and return at once.


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    add_json(parser)


def run_submit(options: argparse.Namespace) -> int:
    """Submit, and print the run's folder and the next command."""
    submission = submit_spec(options)
    if options.json:
        print_json(submission_values(submission))
        return 0
    folder = shown_path(submission.paths.run_dir)
    print_notes(submission)
    print(f"run folder: {folder}")
    print(f"next: {command_text('status', folder)}")
    return 0


def submit_spec(options: argparse.Namespace) -> Submission:
    """Load and submit; print each job when the scheduler accepts it."""
    from slurm_jobs.commands.submit import load, submit

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit, to_submit=True)
    return submit(loaded, on_job=(lambda _job: None) if options.json else print_job)


def print_notes(submission: Submission) -> None:
    """Print warnings about the spec, and differences from it."""
    for note in submission.notes:
        print(f"note: {short_note(note)}")


def print_job(job: SubmittedJob) -> None:
    """Print one line for a job that the scheduler accepted."""
    tasks = f" ({job.num_tasks} tasks)" if job.num_tasks > 1 else ""
    print(f"submitted {job.stage}{tasks} as job {job.job_id}")
    sys.stdout.flush()


def submission_values(submission: Submission) -> dict[str, Any]:
    """Return a submission as JSON values."""
    return {
        "run_id": submission.paths.run_dir.name,
        "run_dir": str(submission.paths.run_dir),
        "jobs": [job_values(job) for job in submission.jobs],
        "notes": list(submission.notes),
    }


def job_values(job: SubmittedJob) -> dict[str, Any]:
    """Return a submitted job as JSON values."""
    return {"stage": job.stage, "job_id": job.job_id, "num_tasks": job.num_tasks}


# `slurm-jobs watch RUN`: show a live view of a run until it ends.


INTERRUPTED_EXIT_CODE = 130


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    add_json(parser)


def run_watch(options: argparse.Namespace) -> int:
    """Watch, and print at the end what failed; the exit code is that of `status`."""
    from slurm_jobs.commands.find_run import find_run

    run_dir = find_run(options.run)
    status, code = watch(run_dir, quiet=options.json)
    if status is None:
        return code
    if options.json:
        from slurm_jobs.cli.status import status_values

        print_json(status_values(run_dir, status, time.time()))
        return code
    for line in end_lines(run_dir, status):
        print(line)
    return code


def watch(
    run_dir: Path, *, quiet: bool, tells_failures: bool = True
) -> tuple[RunStatus | None, int]:
    """Follow a run; return its final status (None if the user stopped watching) and exit code.

    Args:
        run_dir: the run's folder.
        quiet: show nothing.
        tells_failures: see `follow`.
    """
    from slurm_jobs.cli.status import exit_code

    status = follow(run_dir, quiet=quiet, tells_failures=tells_failures)
    return status, INTERRUPTED_EXIT_CODE if status is None else exit_code(status)


def end_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """Return what failed and what to type next."""
    from slurm_jobs.cli.problems import problem_lines

    folder = shown_path(run_dir)
    lines = problem_lines(run_dir, status)
    if status.status == "completed":
        lines.append(f"next: {command_text('report', folder)}")
    elif status.status == "waiting":
        lines.append("no job of this run is queued or running")
        lines.append(f"next: {command_text('resume', folder)}")
    return lines


# `slurm-jobs run SPEC`: submit, watch to the end, and print the report.


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    add_json(parser)


def run_run(options: argparse.Namespace) -> int:
    """Submit and watch; exit code 1 if the run failed."""
    submission = submit_spec(options)
    run_dir = submission.paths.run_dir
    if not options.json:
        print_notes(submission)
        print(f"run folder: {shown_path(run_dir)}\n")
    status, code = watch(run_dir, quiet=options.json, tells_failures=False)
    if status is not None and options.json:
        from slurm_jobs.cli.status import status_values

        print_json(status_values(run_dir, status, time.time()))
    elif status is not None:
        _finish(run_dir, status)
    return code


def _finish(run_dir: Path, status: RunStatus) -> None:
    """Print the report, then each failure once, with its log, and the next command."""
    from slurm_jobs.cli.problems import problem_lines
    from slurm_jobs.cli.report import write_report

    print()
    write_report(run_dir, told=_failed_attempts(status))
    lines = problem_lines(run_dir, status, with_logs=True)
    for line in ["", *lines] if lines else ():
        print(line)
    if status.status == "completed":
        _print_next(run_dir, status)


def _failed_attempts(status: RunStatus) -> frozenset[str]:
    """Return the attempts whose failures `problem_lines` prints or counts."""
    from slurm_jobs.shared.units import attempt_name

    return frozenset(
        attempt_name(
            stage.stage.name,
            part.slice_index,
            part.attempt if part.ending is None else part.ending.attempt,
            part.job_id,
        )
        for stage in status.stages
        for part in stage.slices
        if part.status == "failed"
    )


def _print_next(run_dir: Path, status: RunStatus) -> None:
    folder = shown_path(run_dir)
    last = next(
        stage.stage.name for stage in reversed(status.stages) if stage.stage.run != "report"
    )
    print("\nTry next:")
    print(f"  {command_text('status', folder)}")
    print(f"  {command_text('logs', folder, last, '--tail', '20')}")
    print(f"  {command_text('report', folder, '--json')}")
