"""Selection of log files, and their last lines."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.common.records import CompletionRecord
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_attempt

if TYPE_CHECKING:
    from slurm_jobs.reconcile import SliceStatus

_RANK_LOG = re.compile(r"s(\d+)\.a(\d+)\.rank-(\d+)\.log")
_BLOCK_BYTES = 64 * 1024


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
    found: dict[int, list[tuple[int, int, Path]]] = {}
    for name in os.listdir(folder) if folder.is_dir() else ():  # noqa: PTH208 - names alone: quick
        match = _RANK_LOG.fullmatch(name)
        if match is not None:
            index, number, owner = (int(group) for group in match.groups())
            found.setdefault(index, []).append((number, owner, folder / name))
    logs = []
    for part in slices:
        ranks = found.get(part.slice_index, [])
        newest = max((number for number, _, _ in ranks), default=0)
        first = newest if since is None else since.get(part.slice_index, 1)
        wanted: Collection[int] = {attempt} if attempt is not None else range(first, newest + 1)
        tried = sorted(one for one in ranks if one[0] in wanted)
        logs += [path for _, owner, path in tried if rank in {None, owner}]
        if not ranks or (attempt is not None and not tried):
            logs += supervisor_logs(paths, stage, [part], attempt=attempt)
    return list(dict.fromkeys(logs))


def ranks_with_logs(paths: RunPaths, stage: str, slices: Sequence[SliceStatus]) -> set[int]:
    """Return the ranks of which any attempt at these slices has a log."""
    logs = rank_logs(paths, stage, slices, since={})
    return {int(match[3]) for log in logs if (match := _RANK_LOG.fullmatch(log.name))}


def supervisor_logs(
    paths: RunPaths, stage: str, slices: Sequence[SliceStatus], *, attempt: int | None = None
) -> list[Path]:
    """Return logs of the slices' newest jobs, or of those that made the given attempt, each once.

    A job has one log for all of its attempts, after a retry or a requeue, too.
    """
    ids = [_job_id(paths, stage, part, attempt) for part in slices]
    named = [paths.job_log(stage, job_id) for job_id in dict.fromkeys(ids) if job_id is not None]
    return [log for log in named if log.exists()]


def _job_id(paths: RunPaths, stage: str, part: SliceStatus, attempt: int | None) -> str | None:
    if attempt is None or attempt == part.attempt:
        return part.job_id
    record = read_attempt(paths, stage, part.slice_index, attempt)
    return None if record is None else record.job_id


def explaining_logs(
    paths: RunPaths, stage: str, slices: Sequence[SliceStatus], shown: Sequence[Path]
) -> list[Path]:
    """Return supervisors' logs, not yet shown, of slices that failed without record or output.

    With a full disk, the supervisor cannot write the record, and reports it in its log.
    """
    spoken = {match[1] for log in shown if (match := _RANK_LOG.match(log.name)) and _says(log)}
    silent = [
        part
        for part in slices
        if failed_unrecorded(part) and f"{part.slice_index:05d}" not in spoken
    ]
    known = set(shown)
    return [log for log in supervisor_logs(paths, stage, silent) if log not in known and _says(log)]


def has_explaining_log(paths: RunPaths, stage: str, part: SliceStatus) -> bool:
    """Check for a failure without a record, about which the supervisor's log says most.

    Without a rank log, the supervisor's log is shown anyway.
    """
    own = supervisor_logs(paths, stage, [part])
    is_apart = failed_unrecorded(part) and rank_logs(paths, stage, [part]) != own
    return is_apart and any(_says(log) for log in own)


def failed_unrecorded(part: SliceStatus) -> bool:
    """Check whether a slice failed and no record of its end has a reason."""
    return part.status == "failed" and part.ending is None


def _says(log: Path) -> bool:
    return log.stat().st_size > 0


def failure_log(
    paths: RunPaths, stage: str, part: SliceStatus, record: CompletionRecord | None
) -> Path | None:
    """Return the log that most likely shows why a slice failed: of the rank that failed first."""
    if record is not None and record.failed_rank is not None:
        log = paths.rank_log(stage, part.slice_index, record.attempt, record.failed_rank)
        if log.exists():
            return log
    shown = rank_logs(paths, stage, [part])
    return next(iter([*explaining_logs(paths, stage, [part], shown), *shown]), None)


def shown_name(log: Path, *, with_stage: bool) -> str:
    """Return the name of a log in a list: with several stages `train-2/NAME`."""
    return f"{log.parent.name}/{log.name}" if with_stage else log.name


def last_lines(log: Path, num_lines: int) -> list[str]:
    """Return the last lines of a log of any length, without line ends."""
    with log.open("rb") as stream:
        left = stream.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        num_ends = 0
        while left and num_ends <= num_lines:
            size = min(_BLOCK_BYTES, left)
            left -= size
            stream.seek(left)
            blocks.append(stream.read(size))
            num_ends += blocks[-1].count(b"\n")
    lines = b"".join(reversed(blocks)).decode(errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r") for line in lines[max(0, len(lines) - num_lines) :]]


def numbered_lines(log: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a log with their numbers, from 1, as an editor counts them."""
    with log.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line.rstrip("\r\n")
