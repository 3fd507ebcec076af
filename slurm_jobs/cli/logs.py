"""`slurm-jobs logs RUN [STAGE]`: print, follow or search the logs of tasks and ranks."""

from __future__ import annotations

import argparse
import codecs
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.options import add_run, log_output
from slurm_jobs.cli.problems import (
    explaining_logs,
    last_lines,
    numbered_lines,
    rank_logs,
    ranks_with_logs,
    shown_name,
    supervisor_logs,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.files import ranges_text
from slurm_jobs.shared.redact import plain

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
            with log.open("rb") as stream:
                stream.seek(self.offsets.get(log, 0))
                added = stream.read()
                self.offsets[log] = stream.tell()
            text = self._decoders.setdefault(log, _utf8_decoder(errors="replace")).decode(added)
            if text:
                self._begin(log)
                log_output().write(text)
        sys.stdout.flush()

    def _begin(self, log: Path) -> None:
        """Print the name if another log was printed before, or if there may be several stages."""
        if self._last != log and (self._last is not None or self.with_stage):
            print(f"==> {shown_name(log, with_stage=self.with_stage)} <==")
        self._last = log


def follow_logs(
    look: Callable[[], tuple[Sequence[Path], bool]], *, tail: int | None, with_stage: bool = False
) -> bool:
    """Print logs as they grow until no more will come; return whether there were any.

    Args:
        look: the logs that there are, and whether no more will come.
        tail: number of lines of each log to print at the start.
        with_stage: they are of several stages, so that a log's name needs its stage's.
    """
    growing = GrowingLogs(with_stage=with_stage)
    logs, is_over = look()
    if tail is not None:
        growing.print_ends(logs, tail)
    while True:
        growing.print_added(logs)
        if is_over:
            return bool(growing.offsets)
        end_s = time.monotonic() + LOOK_INTERVAL_S
        while time.monotonic() < end_s:
            time.sleep(FOLLOW_INTERVAL_S)
            growing.print_added(logs)
        logs, is_over = look()


# Printing of logs, whole or their ends, and of matching lines. `logs` selects them.


SUPERVISOR_TAIL_LINES = 20
"""Lines of a supervisor's log that is shown unasked; a Python traceback's end fits."""


def print_explaining(logs: Sequence[Path], tail: int | None, *, with_stage: bool) -> None:
    """Print the ends of supervisors' logs, because the ranks of a failed slice printed nothing."""
    for log in logs:
        shown = shown_name(log, with_stage=with_stage)
        print(f"==> {shown} <== (the supervisor's, as no rank said why it failed)")
        _print_log(log, SUPERVISOR_TAIL_LINES if tail is None else tail)


def print_logs(name: str, logs: Sequence[Path], tail: int | None, *, with_stage: bool) -> None:
    """Print each log, with its name if there are several; report if all are empty."""
    empty = {log for log in logs if not log.stat().st_size}
    if logs and len(empty) == len(logs):
        said = f"logs of `{name}` are empty" if len(logs) > 1 else f"log of `{name}` is empty"
        print(f"the {said}", file=sys.stderr)
        return
    for log in logs:
        if len(logs) > 1 or with_stage:
            shown = shown_name(log, with_stage=with_stage)
            print(f"==> {shown} <=={' (empty)' if log in empty else ''}")
        _print_log(log, tail)


def _print_log(log: Path, tail: int | None) -> None:
    if tail is not None:
        for line in last_lines(log, tail):
            print(line, file=log_output())
        return
    output = log_output()
    for _, line in numbered_lines(log):
        print(line, file=output)


def print_matches(
    logs: Sequence[Path], pattern: re.Pattern[str], tail: int | None, *, with_stage: bool
) -> bool:
    """Print matching lines like grep, `FILE:NUMBER:LINE`; return whether there were any."""
    found, output = False, log_output()
    for log in logs:
        shown = shown_name(log, with_stage=with_stage)
        lines: Iterable[tuple[int, str]] = numbered_lines(log)
        for number, line in lines if tail is None else deque(lines, maxlen=tail):
            for part in line.split("\r"):  # states of a progress bar
                if pattern.search(part):
                    print(f"{plain(shown)}:{number}:{part}", file=output)
                    found = True
    return found


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


def run_logs(options: argparse.Namespace) -> int:
    """Print the chosen logs, each with its name if there are several, or search them."""
    from slurm_jobs.run.observe import status_of

    pattern = None if options.grep is None else _compiled(options.grep)
    run_dir, stage_name = _run_and_stage(options.run, options.stage)
    status = status_of(run_dir, fresh=False)

    def says_something(name: str) -> bool:
        return any(log.stat().st_size for log in _chosen_logs(run_dir, status.stage(name), options))

    everywhere = stage_name is None and pattern is not None
    if everywhere:
        stages = _with_slice(status.stages, options.slice_index)
    elif stage_name is None and options.failed and _failed_stages(status):
        stages = _with_slice(_failed_stages(status), options.slice_index)
    else:
        stages = [status.stage(name) for name in _stages(status, stage_name, says_something)]
    for stage in stages:
        _check_slice(stage, options.slice_index)
    if (options.attempt is not None and options.attempt < 1) or (options.rank or 0) < 0:
        raise InputError(_of_others(run_dir, stages, options))
    name = stage_name or "`, `".join(stage.stage.name for stage in stages)
    name = stages[0].stage.name if len(stages) == 1 else name
    if options.follow:
        return _follow(run_dir, name, stages, options)
    logs = [log for stage in stages for log in _chosen_logs(run_dir, stage, options)]
    if not logs:
        _say_why_none(run_dir, stages, options)
    with_stage = len(stages) > 1 or (everywhere and len(status.stages) > 1)
    if pattern is not None:
        found = print_matches(logs, pattern, options.tail, with_stage=with_stage)
        return 0 if found else NO_MATCH_EXIT_CODE
    num_left = len(logs) - MAX_FAILED_LOGS if options.failed and stage_name is None else 0
    if num_left > 0:
        logs = logs[:MAX_FAILED_LOGS]
    print_logs(name, logs, options.tail, with_stage=with_stage)
    explaining = [log for stage in stages for log in _explaining(run_dir, stage, logs, options)]
    print_explaining(explaining, options.tail, with_stage=with_stage)
    if num_left > 0:
        more = "1 more log" if num_left == 1 else f"{num_left} more logs"
        print(f"... and {more}; name a stage for all of its logs", file=sys.stderr)
    return 0


def _failed_stages(status: RunStatus) -> list[StageStatus]:
    return [s for s in status.stages if any(part.status == "failed" for part in s.slices)]


def _explaining(
    run_dir: Path, stage: StageStatus, shown: Sequence[Path], options: argparse.Namespace
) -> list[Path]:
    """Return supervisors' logs to show unasked: of the newest attempts, if ranks are silent."""
    if options.supervisor or options.attempt is not None:
        return []
    paths, name = RunPaths(run_dir), stage.stage.name
    own = [log for log in shown if log.parent == paths.logs_dir(name)]
    return explaining_logs(paths, name, _chosen_slices(stage, options), own)


def _with_slice(stages: Sequence[StageStatus], index: int | None) -> Sequence[StageStatus]:
    """Return the stages that have this slice; all if none has."""
    having = [stage for stage in stages if index is None or 0 <= index < stage.stage.num_slices]
    return having or stages


def _check_slice(stage: StageStatus, index: int | None) -> None:
    number = stage.stage.num_slices
    if index is not None and not 0 <= index < number:
        which = f"the slices 0 to {number - 1}" if number > 1 else "slice 0 alone"
        message = f"--slice {index}: `{stage.stage.name}` has {which}"
        raise InputError(message)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        message = (
            f"--grep {text}: {error}; a backslash before one of .^$*+?{{}}[]\\|() means the "
            "character itself"
        )
        raise InputError(message) from error


def _chosen_logs(
    run_dir: Path,
    stage: StageStatus,
    options: argparse.Namespace,
    since: Mapping[int, int] | None = None,
) -> list[Path]:
    """Return the existing logs that the options select; `since`: see `rank_logs`."""
    paths, name = RunPaths(run_dir), stage.stage.name
    chosen = _chosen_slices(stage, options)
    rank, attempt = options.rank, options.attempt
    if options.supervisor:
        return supervisor_logs(paths, name, chosen, attempt=attempt)
    return rank_logs(paths, name, chosen, rank=rank, attempt=attempt, since=since)


def _say_why_none(
    run_dir: Path, stages: Sequence[StageStatus], options: argparse.Namespace
) -> None:
    """Print for every selected stage why no log was chosen.

    Raises:
        InputError: some have logs, and none of the rank or attempt that was named.
    """
    others: list[StageStatus] = []
    for stage in stages:
        name, chosen = stage.stage.name, _chosen_slices(stage, options)
        if options.failed and not chosen:
            which = "" if options.slice_index is None else f" {options.slice_index}"
            print(f"no slice{which} of `{name}` failed", file=sys.stderr)
        elif (options.rank, options.attempt) != (None, None) and rank_logs(
            RunPaths(run_dir), name, chosen
        ):
            others.append(stage)
        else:
            print(f"no log of `{name}` yet", file=sys.stderr)
    if others:
        raise InputError(_of_others(run_dir, others, options))


def _of_others(run_dir: Path, stages: Sequence[StageStatus], options: argparse.Namespace) -> str:
    """Return which attempts and ranks there are, where none is the one that was named."""
    from slurm_jobs.run_folder.run_records import read_stage_records

    paths = RunPaths(run_dir)
    names = [f"`{stage.stage.name}`" for stage in stages]
    has = f"{names[0]} has no" if len(names) == 1 else f"none of {', '.join(names)} has a"
    attempts: set[int] = set()
    ranks: set[int] = set()
    for stage in stages:
        name, chosen = stage.stage.name, _chosen_slices(stage, options)
        known = read_stage_records(paths, name).attempts
        attempts.update(n for part in chosen for n in known.get(part.slice_index, ()))
        ranks |= ranks_with_logs(paths, name, chosen)
    known_text = ", ".join(
        f"{word} {ranges_text(sorted(numbers))}"
        for word, numbers in (("attempt", attempts), ("rank", ranks))
        if numbers
    )
    there_is = f"there is {known_text}" if known_text else "it has not begun"
    return f"{has} log of that rank or attempt; without --rank and --attempt: all ({there_is})"


def _chosen_slices(stage: StageStatus, options: argparse.Namespace) -> list[SliceStatus]:
    return [
        part
        for part in stage.slices
        if options.slice_index in {None, part.slice_index}
        and (not options.failed or part.status == "failed")
    ]


def _run_and_stage(run: str | None, stage: str | None) -> tuple[Path, str | None]:
    """Parse RUN and STAGE: `logs train` is a stage of the newest run if no run has that name."""
    from slurm_jobs.commands.find_run import find_run
    from slurm_jobs.run_folder.run_records import stages_called
    from slurm_jobs.shared.errors import did_you_mean

    if run is None or stage is not None or RunPaths(Path(run)).run_json.is_file():
        return find_run(run), stage
    newest, names = _newest_stages()
    if stages_called(run, names):
        return newest or find_run(None), run
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


def _newest_stages() -> tuple[Path | None, dict[str, str]]:
    """Return the newest run and its stages with their names in the file, if readable."""
    from slurm_jobs.commands.find_run import find_run
    from slurm_jobs.run_folder.run_records import read_run

    try:
        newest = find_run(None)
        return newest, {summary.name: summary.origin for summary in read_run(newest).stages}
    except InputError:
        return None, {}


def _stages(
    status: RunStatus, name: str | None, says_something: Callable[[str], bool]
) -> list[str]:
    """Return the selected stage, or the combinations of a matrix."""
    from slurm_jobs.run_folder.run_records import stages_named

    if name is None:
        return [_stage_to_look_at(status, says_something)]
    return stages_named(name, {stage.stage.name: stage.stage.origin for stage in status.stages})


def _stage_to_look_at(status: RunStatus, says_something: Callable[[str], bool]) -> str:
    """Return the last of the completed stages that printed something."""
    names = [stage.stage.name for stage in status.stages]
    for word in ("failed", "running"):
        found = [stage.stage.name for stage in status.stages if stage.status == word]
        if found:
            return found[0] if word == "failed" else found[-1]
    ended = [stage.stage.name for stage in reversed(status.stages) if stage.status == "completed"]
    return next((stage for stage in ended if says_something(stage)), (ended or names)[0])


def _follow(
    run_dir: Path, name: str, stages: Sequence[StageStatus], options: argparse.Namespace
) -> int:
    """Print logs and their growth until the stages have ended; `name` covers them all."""
    from slurm_jobs.run.observe import status_of

    since = {
        stage.stage.name: {part.slice_index: max(1, part.attempt) for part in stage.slices}
        for stage in stages
    }

    def look() -> tuple[list[Path], bool]:
        status = status_of(run_dir, fresh=False)
        logs, is_over = [], True
        for one, first in since.items():
            stage = status.stage(one)
            logs += _chosen_logs(run_dir, stage, options, first)
            is_over = is_over and stage.status not in {"running", "waiting"}
        return logs, is_over

    if not follow_logs(look, tail=options.tail, with_stage=len(stages) > 1):
        print(f"`{name}` has ended without such a log", file=sys.stderr)
    return 0
