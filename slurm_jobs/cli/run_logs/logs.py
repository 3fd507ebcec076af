"""`slurm-jobs logs RUN [STAGE]`: print, follow or search the logs of tasks and ranks."""

from __future__ import annotations

import argparse
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.run_logs.attempt_heads import attempt_heads
from slurm_jobs.cli.run_logs.log_choice import LogChoice
from slurm_jobs.cli.run_logs.log_files import has_text, last_lines, numbered_lines, shown_name
from slurm_jobs.cli.terminal.guarded_streams import log_output
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from slurm_jobs.run_folder.run_values import stages_called

if TYPE_CHECKING:
    from slurm_jobs.cli.run_view.causes import Cause
    from slurm_jobs.status.slice_status import SliceStatus

SUPERVISOR_TAIL_LINES = 20
"""Lines of a supervisor's log that is shown unasked; a Python traceback's end fits."""
MAX_UNNAMED_LOGS = 40
"""Logs that are printed if no stage is named."""
NO_MATCH_EXIT_CODE = 1
"""Exit code of grep."""


def print_matches(
    logs: Sequence[Path], pattern: re.Pattern[str], tail: int | None, *, with_stage: bool
) -> bool:
    """Print matching lines like grep, `FILE:NUMBER:LINE`; return whether there were any."""
    has_match, output = False, log_output()
    for log in logs:
        shown = shown_name(log, with_stage=with_stage)
        lines: Iterable[tuple[int, str]] = numbered_lines(log)
        for number, line in lines if tail is None else deque(lines, maxlen=tail):
            for part in line.split("\r"):  # states of a progress bar
                if pattern.search(part):
                    print(f"{plain(shown)}:{number}:{part}", file=output)
                    has_match = True
    return has_match


def add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "stage",
        metavar="STAGE",
        nargs="?",
        help="default: what failed, else what runs, else what completed last; with --failed and "
        "--grep all stages",
    )
    parser.add_argument("--slice", dest="slice_index", type=int, help="only this slice")
    parser.add_argument("--rank", type=int, help="only this rank")
    parser.add_argument("--attempt", type=int, help="this attempt; default: each slice's newest")
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only slices that failed; with --follow also those that fail later",
    )
    parser.add_argument(
        "--tail", metavar="N", type=_line_count, help="only the last N lines of each log"
    )
    parser.add_argument(
        "--supervisor",
        action="store_true",
        help="the log of set-up lines and supervisor instead of the ranks' logs",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--follow",
        "-f",
        action="store_true",
        help="continue as the logs grow, until the stage has ended",
    )
    how.add_argument(
        "--grep",
        metavar="PATTERN",
        help="only lines in which this regular expression (Python's) is found, with file and "
        "number, of all stages unless one is named; exit code 1 if there is none",
    )


def _line_count(text: str) -> int:
    if not text.isdecimal():
        message = f"{text} is not a number of lines"
        raise argparse.ArgumentTypeError(message)
    return sys.maxsize if len(text) > 18 else int(text)  # more lines than any log has


def run_logs(options: argparse.Namespace) -> int:
    """Print the chosen logs, each with its name unless there can only be one, or search them."""
    from slurm_jobs.run.observe import status_of

    pattern = None if options.grep is None else _compiled(options.grep)
    run_dir, stage_name = _run_and_stage(options.run, options.stage)
    choice = LogChoice(run_dir, status_of(run_dir, fresh=False), stage_name, options)
    has_failed = any(part.status == "failed" for s in choice.stages for part in s.slices)
    if options.failed and not has_failed and stage_name is None and not options.follow:
        print(choice.none_failed_text(), file=sys.stderr)
        return 0 if pattern is None else NO_MATCH_EXIT_CODE
    if (options.attempt is not None and options.attempt < 1) or (options.rank or 0) < 0:
        choice.refuse_rank_and_attempt(choice.stages)
    if options.follow:
        from slurm_jobs.cli.run_logs.follow_logs import follow_logs

        return follow_logs(choice)
    logs = [log for stage in choice.stages for log in choice.logs(stage)]
    if pattern is not None:
        if not logs:
            choice.print_why_none()
        has_match = print_matches(logs, pattern, options.tail, with_stage=choice.with_stage)
        return 0 if has_match else NO_MATCH_EXIT_CODE
    if choice.only == "failed" and has_failed and options.slice_index is None:
        _print_failures(choice)
        return 0
    if not logs:
        choice.print_why_none()
    num_left = 0 if choice.is_stage_named else max(0, len(logs) - MAX_UNNAMED_LOGS)
    logs = logs[: len(logs) - num_left]
    _print_logs(choice, logs)
    for stage in choice.stages:
        _print_explaining(choice, choice.explaining(stage, choice.slices(stage), logs))
    _print_num_left(choice, num_left)
    return 0


def _print_logs(choice: LogChoice, logs: Sequence[Path]) -> None:
    """Print each log; report if all are empty."""
    empty = {log for log in logs if not has_text(log)}
    if logs and len(empty) == len(logs):
        print(choice.all_empty_text(len(logs)), file=sys.stderr)
        return
    heads = attempt_heads(choice.run_dir, logs)
    for log in logs:
        if len(logs) > 1 or not choice.is_one_log:
            _print_head(choice, log, heads)
        elif log in heads:  # the log itself stays as it is
            print(heads[log], file=sys.stderr)
        _print_log(log, choice.options.tail)


def _print_head(choice: LogChoice, log: Path, heads: Mapping[Path, str]) -> None:
    shown = shown_name(log, with_stage=choice.with_stage)
    notes = ["" if has_text(log) else "(empty)", heads.get(log, "")]
    print(" ".join([f"==> {shown} <==", *filter(None, notes)]))


def _print_log(log: Path, tail: int | None) -> None:
    output = log_output()
    for _, line in numbered_lines(log) if tail is None else enumerate(last_lines(log, tail)):
        print(line, file=output)


def _print_explaining(choice: LogChoice, logs: Sequence[Path]) -> None:
    tail = choice.options.tail
    for log in logs:
        shown = shown_name(log, with_stage=choice.with_stage)
        print(f"==> {shown} <== (the supervisor's, as no rank said why it failed)")
        _print_log(log, SUPERVISOR_TAIL_LINES if tail is None else tail)


def _print_num_left(choice: LogChoice, num_left: int) -> None:
    if num_left:
        more = "1 more log" if num_left == 1 else f"{num_left} more logs"
        is_named = choice.is_stage_named
        remedy = "--slice prints that of one" if is_named else "name a stage for all of its logs"
        print(f"... and {more}; {remedy}", file=sys.stderr)


def _print_failures(choice: LogChoice) -> None:
    """Print each cause of failures, with logs of its slices below it.

    With `--failed` these are the logs of all slices, otherwise that of the rank which failed first
    in the first slice.
    """
    from slurm_jobs.cli.run_view.causes import causes_of, slices_name

    options = choice.options
    failed = [(stage, part) for stage in choice.stages for part in choice.slices(stage)]
    causes = causes_of(choice.run_dir, failed)
    shown = causes if choice.is_stage_named else causes[:MAX_UNNAMED_LOGS]
    logs_by_cause = [_logs_of_cause(choice, cause) for cause in shown]
    if not any(logs_by_cause) and (options.rank, options.attempt) != (None, None):
        choice.print_why_none()
        return
    most = None if choice.is_stage_named else MAX_UNNAMED_LOGS // len(shown)
    num_left = len(failed) - sum(len(cause.parts) for cause in causes) if options.failed else 0
    heads = attempt_heads(choice.run_dir, [log for logs in logs_by_cause for log in logs])
    for cause, logs in zip(shown, logs_by_cause, strict=True):
        if cause is not shown[0]:
            print()
        print(cause.line())
        for log in logs[:most]:
            _print_head(choice, log, heads)
            _print_log(log, options.tail)
        if not logs:
            print(f"no log of {slices_name(cause.stage, cause.parts)}", file=sys.stderr)
        num_left += len(logs) - len(logs[:most])
        _print_explaining(choice, choice.explaining(cause.stage, _parts(choice, cause), logs))
    _print_num_left(choice, num_left)
    if len(failed) > len(shown) and not options.failed:
        command = command_text("logs", shown_path(choice.run_dir), "--failed")
        print(f"logs of all {len(failed)} failed slices: {command}", file=sys.stderr)
    _offer_debugger(choice, shown)


def _offer_debugger(choice: LogChoice, causes: Sequence[Cause]) -> None:
    """Name the command that calls a failed function again, if one raised."""
    from slurm_jobs.cli.run_view.causes import failure_record

    for cause in causes:
        stage, part = cause.stage.stage, cause.parts[0]
        record = failure_record(choice.run_dir, stage.name, part)
        if record is None or ":" not in stage.run or record.failed_rank is None:
            continue
        if record.signal is None and record.last_line is None:
            where = ["--slice", str(part.slice_index)] if stage.is_array else []
            command = command_text("debug", shown_path(choice.run_dir), stage.name, *where)
            print(f"call it again under Python's debugger: {command}", file=sys.stderr)
            return


def _parts(choice: LogChoice, cause: Cause) -> Sequence[SliceStatus]:
    """Return the slices whose logs are printed."""
    return cause.parts if choice.options.failed else cause.parts[:1]


def _logs_of_cause(choice: LogChoice, cause: Cause) -> list[Path]:
    logs = choice.logs(cause.stage, _parts(choice, cause))
    options, first = choice.options, cause.parts[0]
    rank = cause.reasons[0].rank
    if rank is None or options.failed or options.supervisor or options.attempt is not None:
        return logs
    paths, name = RunPaths(choice.run_dir), cause.stage.stage.name
    failed_first = paths.rank_log(name, first.slice_index, cause.reasons[0].attempt, rank)
    return [failed_first] if failed_first in logs else logs


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        message = (
            f"--grep {text}: {error}; a backslash before one of .^$*+?{{}}[]\\|() means the "
            "character itself"
        )
        raise InputError(message) from error


def _run_and_stage(run: str | None, stage: str | None) -> tuple[Path, str | None]:
    """Parse RUN and STAGE: `logs train` is a stage of the newest run if no run has that name."""
    from slurm_jobs.base.texts.did_you_mean import did_you_mean
    from slurm_jobs.commands.run_search.find_run import find_run

    if run is None or stage is not None or RunPaths(Path(run)).run_json.is_file():
        return named_run(run), stage
    newest, names = None, {}
    with suppress(InputError):  # there is no run
        newest = find_run(None)
        names = {summary.name: summary.origin for summary in read_run(newest).stages}
    if stages_called(run, names):
        return named_run(None), run
    try:
        return find_run(run), stage
    except InputError as error:
        if not names:
            raise
        message = (
            f"{error}; nor is it a stage of the newest run ({', '.join(names)})"
            f"{did_you_mean(run, [*names, *names.values()])}"
        )
        raise InputError(message) from error
