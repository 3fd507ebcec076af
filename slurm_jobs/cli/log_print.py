"""Printing of logs, whole or their ends, and of matching lines. `logs` selects them."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from slurm_jobs.cli.log_files import last_lines, numbered_lines, shown_name
from slurm_jobs.cli.screen import log_output
from slurm_jobs.common.steering import plain

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
