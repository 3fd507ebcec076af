"""Fence between two attempts at one slice, whatever the scheduler says about their jobs.

A later attempt may begin while an earlier one still runs: the controller lost its state, or takes a
node for dead that is only out of reach. Both write to the same files. So the later one claims its
number and waits, and the earlier one, which looks for that claim, ends its ranks.

An attempt that left a record of its end is not waited for. Of one without a record, the host of the
later attempt knows if its process lives; on another host, the wait is as long as the earlier one
may need to see the claim and to end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_attempt
from slurm_jobs.shared.process_table import living_process
from slurm_jobs.shared.records import AttemptRecord, CompletionName, Outcome

FENCE_POLL_S = 10.0
"""Seconds between two looks of a running attempt for a later one, each of one file name."""
FENCE_PATIENCE_S = 90.0
"""Seconds that a later attempt waits: 60 in which an NFS client may not show a new file (acdirmax
of nfs(5)), one look, and the time in which ranks are ended."""
_POLL_S = 1.0


def has_successor(paths: RunPaths, record: AttemptRecord) -> bool:
    """Check whether a later attempt at the same slice has been claimed."""
    return paths.attempt(record.stage, record.slice_index, record.attempt + 1).exists()


def await_earlier_attempts(
    paths: RunPaths, record: AttemptRecord, say: Callable[[str], None]
) -> str | None:
    """Wait until no earlier attempt at the slice can still write; return why not, or None.

    Args:
        paths: of the run.
        record: of the attempt that waits.
        say: prints a line into the job's log.
    """
    end_s, is_announced = time.monotonic() + FENCE_PATIENCE_S, False
    while open_attempts := list(_open_attempts(paths, record)):
        known = [each for each in open_attempts if each.host == socket.gethostname()]
        living = [each for each in known if _lives(each)]
        if len(known) == len(open_attempts) and not living:
            return None
        if time.monotonic() >= end_s:
            return _still_runs(living[0]) if living else None
        if not is_announced:
            newest = open_attempts[-1]
            say(
                f"waiting for attempt {newest.attempt} (job {newest.job_id} on {newest.host}), "
                "which left no record of its end and may still run; at most "
                f"{FENCE_PATIENCE_S:.0f} s"
            )
            is_announced = True
        time.sleep(_POLL_S)
    return None


def _open_attempts(paths: RunPaths, record: AttemptRecord) -> Iterator[AttemptRecord]:
    """Return the earlier attempts without a record of their end, opened by name."""
    for attempt in range(1, record.attempt):
        earlier = None
        with suppress(OSError, ValueError, TypeError, KeyError):  # damaged: it says nothing
            earlier = read_attempt(paths, record.stage, record.slice_index, attempt)
        if earlier is not None and not _has_ended(paths, earlier):
            yield earlier


def _has_ended(paths: RunPaths, record: AttemptRecord) -> bool:
    names = (
        CompletionName(record.slice_index, record.attempt, record.token, outcome)
        for outcome in get_args(Outcome)
    )
    return any(paths.completion(record.stage, name).exists() for name in names)


def _lives(record: AttemptRecord) -> bool:
    """Check whether an attempt's supervisor is alive on this host: its command has its token."""
    if living_process(record.pid) is None:
        return False
    with suppress(OSError):
        words = Path(f"/proc/{record.pid}/cmdline").read_bytes().split(b"\0")
        return record.token.encode() in words
    return False


def _still_runs(record: AttemptRecord) -> str:
    return (
        f"attempt {record.attempt} at this slice (job {record.job_id}, process {record.pid} on "
        f"{record.host}) still runs, and both would write the same files: end that process, then "
        "resume"
    )
