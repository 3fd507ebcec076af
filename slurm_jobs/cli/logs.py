"""`slurm-jobs logs RUN [STAGE]`: print, follow or search the logs of tasks and ranks."""

from __future__ import annotations

import argparse
import codecs
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from slurm_jobs.cli.log_files import (
    blocks_to_the_end,
    explaining_logs,
    has_text,
    last_lines,
    numbered_lines,
    rank_logs,
    ranks_with_logs,
    shown_name,
    supervisor_logs,
)
from slurm_jobs.cli.options import add_run, log_output, named_run
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run, stages_called, stages_named
from slurm_jobs.shared.errors import InputError, plain
from slurm_jobs.shared.files import ranges_text
from slurm_jobs.shared.regular_files import open_regular

if TYPE_CHECKING:
    from slurm_jobs.status import RunStatus, SliceStatus, StageStatus


# Printing of logs as they grow, including slices and attempts that begin meanwhile.


_utf8_decoder = codecs.getincrementaldecoder("utf-8")
FOLLOW_INTERVAL_S = 0.5
LOOK_INTERVAL_S = 2.0
"""Interval between two listings of the stage's log folder."""


@dataclass(slots=True)
class GrowingLogs:
    """Logs, and the position up to which each has been printed."""

    with_stage: bool = False
    """True if they are of several stages."""
    offsets: dict[Path, int] = field(default_factory=dict)
    _decoders: dict[Path, codecs.IncrementalDecoder] = field(default_factory=dict)
    """Each keeps the first bytes of a character that is not complete yet."""
    _last: Path | None = None

    def print_ends(self, logs: Sequence[Path], num_lines: int) -> None:
        """Print the last lines of each, and continue from there."""
        for log in logs:
            self.offsets[log] = log.stat().st_size
            lines = last_lines(log, num_lines)
            if lines:
                self._begin(log)
            for line in lines:
                print(line, file=log_output())

    def print_added(self, logs: Sequence[Path]) -> None:
        """Print what was added to these logs, or to earlier ones."""
        for log in dict.fromkeys([*self.offsets, *logs]):
            decoder = self._decoders.setdefault(log, _utf8_decoder(errors="replace"))
            with open_regular(log) as stream:
                stream.seek(self.offsets.get(log, 0))
                for block in blocks_to_the_end(stream):
                    if text := decoder.decode(block):
                        self._begin(log)
                        log_output().write(text)
                self.offsets[log] = stream.tell()
        sys.stdout.flush()

    def _begin(self, log: Path) -> None:
        """Print the name if another log was printed before, or if there may be several stages."""
        if self._last != log and (self._last is not None or self.with_stage):
            print(f"==> {shown_name(log, with_stage=self.with_stage)} <==")
        self._last = log


# Printing of logs, whole or their ends, and of matching lines. `logs` selects them.


SUPERVISOR_TAIL_LINES = 20
"""Lines of a supervisor's log that is shown unasked; a Python traceback's end fits."""


def print_logs(name: str, logs: Sequence[Path], tail: int | None, *, with_stage: bool) -> None:
    """Print each log, with its name if there are several; report if all are empty."""
    empty = {log for log in logs if not has_text(log)}
    if logs and len(empty) == len(logs):
        message = f"logs of `{name}` are empty" if len(logs) > 1 else f"log of `{name}` is empty"
        print(f"the {message}", file=sys.stderr)
        return
    for log in logs:
        if len(logs) > 1 or with_stage:
            shown = shown_name(log, with_stage=with_stage)
            print(f"==> {shown} <=={' (empty)' if log in empty else ''}")
        _print_log(log, tail)


def _print_log(log: Path, tail: int | None) -> None:
    output = log_output()
    for _, line in numbered_lines(log) if tail is None else enumerate(last_lines(log, tail)):
        print(line, file=output)


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


MAX_FAILED_LOGS = 40
"""Logs that `--failed` prints without a stage."""
NO_MATCH_EXIT_CODE = 1
"""Exit code of grep."""


def add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "stage",
        metavar="STAGE",
        nargs="?",
        help="default: the one that failed or runs; with --failed all that failed, with --grep all",
    )
    parser.add_argument("--slice", dest="slice_index", type=int, help="only this slice")
    parser.add_argument("--rank", type=int, help="only this rank")
    parser.add_argument("--attempt", type=int, help="this attempt; default: each slice's newest")
    parser.add_argument("--failed", action="store_true", help="only slices that failed")
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


class _Choice:
    """Slices and logs that the options select."""

    def __init__(self, run_dir: Path, options: argparse.Namespace) -> None:
        self._paths = RunPaths(run_dir)
        self._options = options

    def slices(self, stage: StageStatus) -> list[SliceStatus]:
        """Return the selected slices of a stage."""
        index, failed = self._options.slice_index, self._options.failed
        parts = [part for part in stage.slices if index in {None, part.slice_index}]
        return [part for part in parts if not failed or part.status == "failed"]

    def logs(self, stage: StageStatus, since: Mapping[int, int] | None = None) -> list[Path]:
        """Return the existing logs of a stage; `since`: see `rank_logs`."""
        name, slices, options = stage.stage.name, self.slices(stage), self._options
        attempt = options.attempt
        if options.supervisor:
            return supervisor_logs(self._paths, name, slices, attempt=attempt)
        return rank_logs(self._paths, name, slices, rank=options.rank, attempt=attempt, since=since)

    def explaining(self, stage: StageStatus, shown: Sequence[Path]) -> list[Path]:
        """Return supervisors' logs to show unasked: of the newest attempts, if ranks are silent."""
        if self._options.supervisor or self._options.attempt is not None:
            return []
        name = stage.stage.name
        logs = [log for log in shown if log.parent == self._paths.logs_dir(name)]
        return explaining_logs(self._paths, name, self.slices(stage), logs)

    def print_why_none(self, stages: Sequence[StageStatus]) -> None:
        """Print for every selected stage why no log was chosen.

        Raises:
            InputError: some have logs, and none of the rank or attempt that was named.
        """
        options = self._options
        with_others: list[StageStatus] = []
        for stage in stages:
            name, slices = stage.stage.name, self.slices(stage)
            if options.failed and not slices:
                which = "" if options.slice_index is None else f" {options.slice_index}"
                print(f"no slice{which} of `{name}` failed", file=sys.stderr)
            elif (options.rank, options.attempt) != (None, None) and rank_logs(
                self._paths, name, slices
            ):
                with_others.append(stage)
            else:
                print(f"no log of `{name}` yet", file=sys.stderr)
        if with_others:
            self.refuse_rank_and_attempt(with_others)

    def refuse_rank_and_attempt(self, stages: Sequence[StageStatus]) -> NoReturn:
        """Raise InputError with the attempts and ranks that the stages have."""
        from slurm_jobs.run_folder.run_records import read_stage_records

        names = [f"`{stage.stage.name}`" for stage in stages]
        has = f"{names[0]} has no" if len(names) == 1 else f"none of {', '.join(names)} has a"
        attempts: set[int] = set()
        ranks: set[int] = set()
        for stage in stages:
            slices = self.slices(stage)
            known = read_stage_records(self._paths, stage.stage.name).attempts
            attempts.update(n for part in slices for n in known.get(part.slice_index, ()))
            ranks |= ranks_with_logs(self._paths, stage.stage.name, slices)
        known_text = ", ".join(
            f"{word} {ranges_text(sorted(numbers))}"
            for word, numbers in (("attempt", attempts), ("rank", ranks))
            if numbers
        )
        there_is = f"there is {known_text}" if known_text else "it has not begun"
        message = f"{has} log of that rank or attempt; {there_is}"
        raise InputError(message)


def run_logs(options: argparse.Namespace) -> int:
    """Print the chosen logs, each with its name if there are several, or search them."""
    from slurm_jobs.run.observe import status_of

    pattern = None if options.grep is None else _compiled(options.grep)
    run_dir, stage_name = _run_and_stage(options.run, options.stage)
    status = status_of(run_dir, fresh=False)
    choice = _Choice(run_dir, options)
    everywhere = stage_name is None and pattern is not None
    has_failed = any(part.status == "failed" for stage in status.stages for part in stage.slices)
    if options.failed and not has_failed and stage_name is None and not options.follow:
        print(f"no slice of {run_dir.name} failed", file=sys.stderr)
        return 0 if pattern is None else NO_MATCH_EXIT_CODE
    stages = _selected_stages(status, stage_name, choice, options)
    if (options.attempt is not None and options.attempt < 1) or (options.rank or 0) < 0:
        choice.refuse_rank_and_attempt(stages)
    name = stage_name or "`, `".join(stage.stage.name for stage in stages)
    name = stages[0].stage.name if len(stages) == 1 else name
    if options.follow:
        return _follow(run_dir, name, stages, choice, options.tail)
    logs = [log for stage in stages for log in choice.logs(stage)]
    if not logs:
        choice.print_why_none(stages)
    with_stage = len(stages) > 1 or (everywhere and len(status.stages) > 1)
    if pattern is not None:
        has_match = print_matches(logs, pattern, options.tail, with_stage=with_stage)
        return 0 if has_match else NO_MATCH_EXIT_CODE
    num_left = len(logs) - MAX_FAILED_LOGS if options.failed and stage_name is None else 0
    if num_left > 0:
        logs = logs[:MAX_FAILED_LOGS]
    print_logs(name, logs, options.tail, with_stage=with_stage)
    for log in [log for stage in stages for log in choice.explaining(stage, logs)]:
        shown = shown_name(log, with_stage=with_stage)
        print(f"==> {shown} <== (the supervisor's, as no rank said why it failed)")
        _print_log(log, SUPERVISOR_TAIL_LINES if options.tail is None else options.tail)
    if num_left > 0:
        more = "1 more log" if num_left == 1 else f"{num_left} more logs"
        print(f"... and {more}; name a stage for all of its logs", file=sys.stderr)
    return 0


def _selected_stages(
    status: RunStatus, stage_name: str | None, choice: _Choice, options: argparse.Namespace
) -> list[StageStatus]:
    """Return the stages whose logs are printed or searched.

    Raises:
        InputError: none of them has the named slice, or the stage does not exist.
    """
    index, is_search = options.slice_index, options.grep is not None
    failed = [s for s in status.stages if any(part.status == "failed" for part in s.slices)]
    if stage_name is not None:  # all combinations of a matrix
        origins = {stage.stage.name: stage.stage.origin for stage in status.stages}
        stages = [status.stage(name) for name in stages_named(stage_name, origins)]
    elif is_search or (options.failed and failed):
        stages = list(status.stages) if is_search else failed
        stages = [s for s in stages if index is None or 0 <= index < s.stage.num_slices] or stages
    else:
        stages = [_stage_to_show(status, choice)]
    for stage in stages:
        number = stage.stage.num_slices
        if index is not None and not 0 <= index < number:
            which = f"the slices 0 to {number - 1}" if number > 1 else "slice 0 alone"
            message = f"--slice {index}: `{stage.stage.name}` has {which}"
            raise InputError(message)
    return stages


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
    from slurm_jobs.commands.find_run import find_run
    from slurm_jobs.shared.errors import did_you_mean

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


def _stage_to_show(status: RunStatus, choice: _Choice) -> StageStatus:
    """Return the first failed stage, the last running, or the last completed that printed."""
    for word in ("failed", "running", "completed"):
        stages = [stage for stage in status.stages if stage.status == word]
        if not stages:
            continue
        if word != "completed":
            return stages[0] if word == "failed" else stages[-1]
        for stage in reversed(stages):
            if any(has_text(log) for log in choice.logs(stage)):
                return stage
        return stages[-1]
    return status.stages[0]


def _follow(
    run_dir: Path,
    name: str,
    stages: Sequence[StageStatus],
    choice: _Choice,
    tail: int | None,
) -> int:
    """Print logs and their growth until the stages have ended; `name` covers them all."""
    from slurm_jobs.run.observe import status_of

    since = {
        stage.stage.name: {part.slice_index: max(1, part.attempt) for part in stage.slices}
        for stage in stages
    }
    growing = GrowingLogs(with_stage=len(stages) > 1)
    is_over = False
    while not is_over:
        status = status_of(run_dir, fresh=False)
        now = [status.stage(stage_name) for stage_name in since]
        logs = [log for stage in now for log in choice.logs(stage, since[stage.stage.name])]
        is_over = all(stage.status not in {"running", "waiting"} for stage in now)
        if tail is not None:
            growing.print_ends(logs, tail)
            tail = None
        growing.print_added(logs)
        end_s = time.monotonic() + LOOK_INTERVAL_S
        while not is_over and time.monotonic() < end_s:
            time.sleep(FOLLOW_INTERVAL_S)
            growing.print_added(logs)
    if not growing.offsets:
        print(f"`{name}` has ended without such a log", file=sys.stderr)
    return 0
