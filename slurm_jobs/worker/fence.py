"""Fence between two attempts at one slice, whatever the scheduler says about their jobs.

A later attempt may begin while an earlier one still runs: the controller lost its state, or takes a
node for dead that is only out of reach. Both write to the same files. So the later one claims its
number and waits, and the earlier one, which looks for that claim, ends its ranks.

An attempt that left a record of its end is not waited for, and neither are those before one that
has begun its work, because that one has waited. Of an attempt without a record, the host of the
later one knows if its process lives; on another host, the wait is as long as the earlier one may
need to see the claim and to end.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

from slurm_jobs.base.errors import FileError
from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.formats.records.attempt_records import AttemptRecord, CompletionName, Outcome
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_attempt

FENCE_POLL_S = 10.0
"""Seconds between two looks of a running attempt for a later one, mostly of one file name."""
FENCE_PATIENCE_S = 90.0
"""Seconds that a later attempt waits: 60 in which an NFS client may not show a new file (acdirmax
of nfs(5)), one look, and the time in which ranks are ended."""
_POLL_S = 1.0
UNREADABLE = (OSError, ValueError, TypeError, LookupError, FileError)
"""Errors of a file system that is out of order for a moment, or of a damaged file."""


def later_claims(paths: RunPaths, record: AttemptRecord) -> Iterator[AttemptRecord]:
    """Return the later attempts at the same slice that work, have worked, or wait to begin.

    One that ended before it began its work needs the slice no longer.

    Raises:
        OSError: the file system does not answer.
    """
    for attempt in itertools.count(record.attempt + 1):
        if not paths.attempt(record.stage, record.slice_index, attempt).exists():
            return
        claim = _read(paths, record, attempt)
        if claim is not None and (not _has_ended(paths, claim) or _has_begun(paths, claim)):
            yield claim


def is_of_older_start(paths: RunPaths, record: AttemptRecord) -> bool:
    """Check whether its job has been requeued since, and the newer start has claimed an attempt.

    Every smaller number had been claimed when this one was, so it is enough to look once.
    """
    return any(
        earlier.token == record.token and earlier.restart > record.restart
        for earlier in _earlier_attempts(paths, record)
    )


def await_earlier_attempts(
    paths: RunPaths,
    record: AttemptRecord,
    say: Callable[[str], None],
    *,
    is_called_off: Callable[[], bool] = lambda: False,
) -> str | None:
    """Wait until no earlier attempt at the slice can still write.

    Returns:
        Why this attempt cannot begin: an earlier one still runs after the whole wait. None if it
        may begin, and also if it was called off, which the caller must check again.

    Args:
        paths: of the run.
        record: of the attempt that waits.
        say: prints a line into the job's log.
        is_called_off: returns whether this attempt is not to begin, which ends the wait.
    """
    end_s, is_announced = time.monotonic() + FENCE_PATIENCE_S, False
    while (open_attempts := list(_open_attempts(paths, record))) and not is_called_off():
        known = [each for each in open_attempts if each.host == socket.gethostname()]
        living = [each for each in known if _lives(each)]
        if len(known) == len(open_attempts) and not living:
            return None
        if time.monotonic() >= end_s:
            if not living:
                return None
            first = living[0]
            return (
                f"attempt {first.attempt} at this slice (job {first.job_id}, process {first.pid} "
                f"on {first.host}) still runs, and both would write the same files: end that "
                "process, then resume"
            )
        if not is_announced:
            newest = open_attempts[0]
            say(
                f"waiting for attempt {newest.attempt} (job {newest.job_id} on {newest.host}), "
                "which left no record of its end and may still run; at most "
                f"{FENCE_PATIENCE_S:.0f} s"
            )
            is_announced = True
        time.sleep(_POLL_S)
    return None


def _open_attempts(paths: RunPaths, record: AttemptRecord) -> Iterator[AttemptRecord]:
    """Return the earlier attempts that may still write, from the newest to one that has begun."""
    for earlier in _earlier_attempts(paths, record):
        has_ended = has_begun = False
        with suppress(*UNREADABLE):  # then it is waited for
            has_ended, has_begun = _has_ended(paths, earlier), _has_begun(paths, earlier)
        if not has_ended:
            yield earlier
        if has_begun:
            return


def _earlier_attempts(paths: RunPaths, record: AttemptRecord) -> Iterator[AttemptRecord]:
    """Return the earlier attempts from the newest, opened by name."""
    for attempt in range(record.attempt - 1, 0, -1):
        earlier = _read(paths, record, attempt)
        if earlier is not None:
            yield earlier


def _read(paths: RunPaths, record: AttemptRecord, attempt: int) -> AttemptRecord | None:
    with suppress(*UNREADABLE):  # it says nothing
        return read_attempt(paths, record.stage, record.slice_index, attempt)
    return None


def _has_ended(paths: RunPaths, record: AttemptRecord) -> bool:
    names = (
        CompletionName(record.slice_index, record.attempt, record.token, outcome)
        for outcome in get_args(Outcome)
    )
    return any(paths.completion(record.stage, name).exists() for name in names)


def _has_begun(paths: RunPaths, record: AttemptRecord) -> bool:
    """Check whether an attempt has passed the fence: the folder of its ranks is made then."""
    return paths.task_dir(record.stage, record.slice_index, record.attempt).exists()


def _lives(record: AttemptRecord) -> bool:
    """Check whether an attempt's supervisor is alive on this host: its command has its token.

    After a restart of the host its pid may be that of this process, or of another of its job.
    """
    process = None if record.pid == os.getpid() else living_process(record.pid)
    if process is None or record.start_ticks not in {0, process.start_ticks}:
        return False
    with suppress(OSError):
        words = Path(f"/proc/{record.pid}/cmdline").read_bytes().split(b"\0")
        return record.token.encode() in words
    return False
