"""`logs --follow`: print chosen logs until their stages have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.run_logs.growing_logs import GrowingLogs
from slurm_jobs.cli.run_logs.log_choice import LogChoice, why_no_log
from slurm_jobs.cli.run_view.problems import FailedAttempt, new_failures
from slurm_jobs.run.observe import status_of

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus

FOLLOW_INTERVAL_S = 0.5
LOOK_INTERVAL_S = 2.0
"""Interval between two listings of the stage's log folder."""


def follow_logs(choice: LogChoice) -> int:
    """Print logs and their growth until the stages have ended; return the exit code.

    With `--failed`, print each failure when it happens, and the log of its slice.
    """
    tail, is_failed = choice.options.tail, choice.options.failed
    since = {
        stage.stage.name: {part.slice_index: max(1, part.attempt) for part in stage.slices}
        for stage in choice.stages
    }
    growing = GrowingLogs(with_heads=not choice.is_one_log, with_stage=choice.with_stage)
    reported: set[FailedAttempt] = set()
    is_first, is_over = True, False
    while not is_over:
        status = status_of(choice.run_dir, fresh=False)
        choice.stages = [status.stage(name) for name in since]
        is_over = all(stage.status not in {"running", "waiting"} for stage in choice.stages)
        if is_failed:
            _print_new_failures(choice, status, reported)
        logs: list[Path] = []
        for stage in choice.stages:
            logs += choice.logs(stage, since=None if is_failed else since[stage.stage.name])
        if tail is not None and (is_first or is_failed):
            growing.print_ends([log for log in logs if log not in growing.offsets], tail)
        growing.print_added(logs)
        if is_first and not is_over and not growing.has_printed:
            print(_nothing_yet_text(choice, logs), file=sys.stderr)
        is_first = False
        end_s = time.monotonic() + LOOK_INTERVAL_S
        while not is_over and time.monotonic() < end_s:
            time.sleep(FOLLOW_INTERVAL_S)
            growing.print_added(logs)
    if is_failed and not reported:
        print(choice.none_failed_text(), file=sys.stderr)
    elif not growing.offsets:
        choice.print_why_none()
    elif not growing.has_printed:
        print(choice.all_empty_text(len(growing.offsets)), file=sys.stderr)
    return 0


def _print_new_failures(choice: LogChoice, status: RunStatus, reported: set[FailedAttempt]) -> None:
    stages = (replace(stage, slices=tuple(choice.slices(stage))) for stage in choice.stages)
    new = new_failures(choice.run_dir, replace(status, stages=tuple(stages)), reported)
    reported |= new.attempts
    for line in new.lines:
        print(line)


def _nothing_yet_text(choice: LogChoice, logs: Sequence[Path]) -> str:
    if choice.options.failed:
        return choice.none_failed_text(so_far=True)
    if logs:
        return choice.all_empty_text(len(logs))
    stage = choice.stages[0]
    return why_no_log(stage, choice.slices(stage) or stage.slices, choice.options.slice_index)
