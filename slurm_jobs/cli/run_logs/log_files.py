"""Log files of a run: which belong to a slice, and their lines."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_attempt

if TYPE_CHECKING:
    from slurm_jobs.status.slice_status import SliceStatus

_RANK_LOG = re.compile(r"s(\d+)\.a(\d+)\.rank-(\d+)\.log")
_BLOCK_BYTES = 64 * 1024
_MOST_LINE_BYTES = 1 << 20
"""Longer lines lose their middle: a file without line ends must not fill the memory."""
_MOST_TAIL_BYTES = 64 << 20
"""Bytes at the end of a log that are searched for its last lines."""


def rank_logs(
    paths: RunPaths,
    stage: str,
    slices: Sequence[SliceStatus],
    *,
    rank: int | None = None,
    attempt: int | None = None,
    since: Mapping[int, int] | None = None,
) -> list[Path]:
    """Return rank logs of the slices' newest (or the given) attempts.

    With `since`, an attempt by slice: of that one and all later. A slice without rank logs, or
    whose given attempt began without one, gets its supervisor's log, which also has the output of
    set-up lines.
    """
    folder = paths.logs_dir(stage)
    by_rank: dict[int, list[tuple[int, int, Path]]] = {}
    for name in os.listdir(folder) if folder.is_dir() else ():  # noqa: PTH208 - names alone: quick
        match = _RANK_LOG.fullmatch(name)
        if match is not None:
            index, number, owner = (int(group) for group in match.groups())
            by_rank.setdefault(index, []).append((number, owner, folder / name))
    logs = []
    for part in slices:
        ranks = by_rank.get(part.slice_index, [])
        newest = max((number for number, _, _ in ranks), default=0)
        first = newest if since is None else since.get(part.slice_index, 1)
        attempts: Collection[int] = {attempt} if attempt is not None else range(first, newest + 1)
        tried = sorted(entry for entry in ranks if entry[0] in attempts)
        logs += [path for _, owner, path in tried if rank in {None, owner}]
        if not ranks or (attempt is not None and not tried):
            logs += supervisor_logs(paths, stage, [part], attempt=attempt)
    return list(dict.fromkeys(logs))


def attempt_of_log(log: Path) -> tuple[int, int] | None:
    """Return slice and attempt of a rank's log; None for a supervisor's."""
    match = _RANK_LOG.fullmatch(log.name)
    return (int(match[1]), int(match[2])) if match else None


def ranks_with_logs(paths: RunPaths, stage: str, slices: Sequence[SliceStatus]) -> set[int]:
    """Return the ranks of which any attempt at these slices has a log."""
    ranks = set()
    for log in rank_logs(paths, stage, slices, since={}):
        match = _RANK_LOG.fullmatch(log.name)
        if match is not None:
            ranks.add(int(match[3]))
    return ranks


def supervisor_logs(
    paths: RunPaths, stage: str, slices: Sequence[SliceStatus], *, attempt: int | None = None
) -> list[Path]:
    """Return logs of the slices' newest jobs, or of those that made the given attempt, each once.

    A job has one log for all of its attempts, after a retry or a requeue, too.
    """
    logs: dict[Path, None] = {}
    for part in slices:
        job_id = part.job_id
        if attempt not in {None, part.attempt}:
            record = read_attempt(paths, stage, part.slice_index, attempt)
            job_id = None if record is None else record.job_id
        if job_id is not None:
            logs[paths.job_log(stage, job_id)] = None
    return [log for log in logs if log.exists()]


def explaining_logs(
    paths: RunPaths, stage: str, slices: Sequence[SliceStatus], shown: Sequence[Path]
) -> list[Path]:
    """Return supervisors' logs, not yet shown, of slices that failed without record or output.

    With a full disk, the supervisor cannot write the record, and reports it in its log.
    """
    with_output = set()
    for log in shown:
        match = _RANK_LOG.match(log.name)
        if match is not None and has_text(log):
            with_output.add(int(match[1]))
    unexplained = [p for p in slices if failed_unrecorded(p) and p.slice_index not in with_output]
    logs = supervisor_logs(paths, stage, unexplained)
    return [log for log in logs if log not in {*shown} and has_text(log)]


def has_explaining_log(paths: RunPaths, stage: str, part: SliceStatus) -> bool:
    """Check whether the supervisor's log explains a failure that has no record.

    Without a rank log, the supervisor's log is shown anyway.
    """
    of_supervisor = supervisor_logs(paths, stage, [part])
    is_separate = failed_unrecorded(part) and rank_logs(paths, stage, [part]) != of_supervisor
    return is_separate and any(has_text(log) for log in of_supervisor)


def failed_unrecorded(part: SliceStatus) -> bool:
    """Check whether a slice failed and no record of its end has a reason."""
    return part.status == "failed" and part.ending is None


def shown_name(log: Path, *, with_stage: bool) -> str:
    """Return the name of a log in a list: with several stages `train-2/NAME`."""
    return f"{log.parent.name}/{log.name}" if with_stage else log.name


def has_text(log: Path) -> bool:
    """Check whether a log has anything to print; what is no file counts, because reading names it.

    Raises:
        OSError: it does not exist.
    """
    status = log.stat()
    return status.st_size > 0 or not stat.S_ISREG(status.st_mode)


def last_lines(log: Path, num_lines: int) -> list[str]:
    """Return the last lines of a log of any length, without line ends.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(log) as stream:
        left = end = stream.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        num_ends = 0
        while left and num_ends <= num_lines and end - left < _MOST_TAIL_BYTES:
            size = min(_BLOCK_BYTES, left)
            left -= size
            stream.seek(left)
            blocks.append(stream.read(size))
            num_ends += blocks[-1].count(b"\n")
    lines = b"".join(reversed(blocks)).decode(errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    last = lines[max(0, len(lines) - num_lines) :]
    return [truncated(line.rstrip("\r"), _MOST_LINE_BYTES) for line in last]


def numbered_lines(log: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a log with their numbers, from 1, as an editor counts them.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    number = 0
    with open_regular(log) as stream:
        while line := stream.readline(_MOST_LINE_BYTES):
            number += 1
            text = line.decode(errors="replace").rstrip("\r\n")
            if not line.endswith(b"\n") and (num_left := _skip_line(stream)):
                text = text.rstrip("\0")
                text += f" ... ({num_left:,} more bytes of this line are in {log.name})"
            yield number, text


def _skip_line(stream: IO[bytes]) -> int:
    """Go to the end of the line, and return the bytes until there."""
    begin = stream.tell()
    while (piece := stream.readline(_MOST_LINE_BYTES)) and not piece.endswith(b"\n"):
        _skip_hole(stream, piece)
    return stream.tell() - begin


def blocks_to_the_end(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of an open log in blocks, without the holes of a sparse file."""
    while block := stream.read(_MOST_LINE_BYTES):
        if len(block) < _MOST_LINE_BYTES or not _skip_hole(stream, block):
            yield block


def _skip_hole(stream: IO[bytes], last: bytes) -> bool:
    """Go on to the next data if the last block was zeros; a hole may have terabytes of them.

    Such logs exist: a program writes at its old place after a log was cut to length 0.
    """
    if last.strip(b"\0"):
        return False
    try:
        stream.seek(stream.tell(), os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a file system that knows no holes
            return False
        stream.seek(0, os.SEEK_END)
    return True
