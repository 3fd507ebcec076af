"""Reader of the timing records of a stage's attempts: steps, spans, and node readings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from slurm_jobs.common.errors import DamagedFileError
from slurm_jobs.common.operator_table import read_operators, trace_path
from slurm_jobs.common.system_readings import read_system
from slurm_jobs.common.timings import StepFile, read_spans, read_steps, spans_path, steps_path
from slurm_jobs.profiles.occupancy import occupancy
from slurm_jobs.profiles.trace import read_trace
from slurm_jobs.report import words
from slurm_jobs.report.inputs.columns import StepColumns
from slurm_jobs.report.inputs.records import NodeReadings, ProfileTable, RankTiming

if TYPE_CHECKING:
    import numpy as np

_TIMING_FOLDER = re.compile(r"s(\d+)\.a(\d+)")
_NODE_FILE = re.compile(r"node-\d+\.system")
_MOST_TRACE_BYTES = 8 << 20
"""Compressed size; reading it takes hundreds of MiB of memory."""
_PROFILE_FILE = re.compile(r"rank-(\d+)\.operators\.json")
_TIMING_FILE = re.compile(r"rank-(\d+)\.(steps|spans\.jsonl)")


def list_files(folder: Path) -> list[Path]:
    """Return the files by name; none if the folder does not exist."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def read_timings(folder: Path, problems: list[str], *, whole: bool) -> tuple[RankTiming, ...]:
    """Return records by slice, attempt and rank; `whole` keeps all fields of the files."""
    found: list[RankTiming] = []
    for attempt_dir in list_files(folder):
        match = _TIMING_FOLDER.fullmatch(attempt_dir.name)
        if match is None:
            continue
        names = [_TIMING_FILE.fullmatch(path.name) for path in list_files(attempt_dir)]
        ranks = sorted({int(name[1]) for name in names if name})
        found.extend(
            _read_rank(attempt_dir, int(match[1]), int(match[2]), rank, problems, whole=whole)
            for rank in ranks
        )
    return tuple(found)


def _read_rank(
    folder: Path,
    slice_index: int,
    attempt: int,
    rank: int,
    problems: list[str],
    *,
    whole: bool,
) -> RankTiming:
    steps: StepFile | None = None
    spans: list[dict[str, Any]] = []
    steps_file = steps_path(folder, rank)
    spans_file = spans_path(folder, rank)
    try:
        if steps_file.exists():
            steps = read_steps(steps_file)
            if not whole:
                columns = StepColumns.of(steps.steps)
                steps = replace(steps, steps=cast("np.ndarray", columns))  # only the used fields
            if steps.num_damaged:
                records = words.number_of("step record", steps.num_damaged)
                problems.append(
                    f"{folder.name}, rank {rank}: {records} left out, from the first damaged one on"
                )
        if spans_file.exists():
            spans, num_damaged = read_spans(spans_file)
            if num_damaged:
                lines = words.number_of("damaged line", num_damaged)
                problems.append(f"{folder.name}, rank {rank}: {lines} of spans left out")
    except (OSError, ValueError) as error:
        problems.append(f"{folder.name}, rank {rank}: timing not read: {error}")
    return RankTiming(
        slice_index=slice_index, attempt=attempt, rank=rank, steps=steps, spans=tuple(spans)
    )


def read_readings(folder: Path, problems: list[str]) -> tuple[NodeReadings, ...]:
    """Return readings by slice, attempt and node; unreadable ones become problems."""
    found = []
    for attempt_dir in list_files(folder):
        match = _TIMING_FOLDER.fullmatch(attempt_dir.name)
        for path in list_files(attempt_dir) if match is not None else ():
            if match is None or _NODE_FILE.fullmatch(path.name) is None:
                continue
            try:
                file = read_system(path)
            except (OSError, ValueError) as error:
                problems.append(f"{attempt_dir.name}: readings of a node not read: {error}")
                continue
            if file.num_damaged:
                lost = words.number_of("reading", file.num_damaged)
                problems.append(f"{attempt_dir.name}, {path.name}: {lost} left out as damaged")
            found.append(
                NodeReadings(
                    slice_index=int(match[1]),
                    attempt=int(match[2]),
                    node=str(file.metadata.get("node_name") or path.stem),
                    metadata=file.metadata,
                    readings=file.readings,
                )
            )
    return tuple(found)


def read_profiles(folder: Path, problems: list[str]) -> tuple[ProfileTable, ...]:
    """Return profiles by slice, attempt and rank; unreadable ones become problems."""
    found = []
    for attempt_dir in list_files(folder):
        match = _TIMING_FOLDER.fullmatch(attempt_dir.name)
        for path in list_files(attempt_dir) if match is not None else ():
            own = _PROFILE_FILE.fullmatch(path.name)
            if match is None or own is None:
                continue
            try:
                table = read_operators(path)
            except (OSError, ValueError, TypeError, KeyError) as error:
                problems.append(f"{attempt_dir.name}, rank {own[1]}: profile not read: {error}")
                continue
            profile = ProfileTable(
                slice_index=int(match[1]), attempt=int(match[2]), rank=int(own[1]), table=table
            )
            found.append(profile)
    return tuple(_with_device(profile, folder, found, problems) for profile in found)


def _with_device(
    profile: ProfileTable, folder: Path, profiles: Sequence[ProfileTable], problems: list[str]
) -> ProfileTable:
    """Add the device from the trace of one rank: traces may be large, and ranks do similar work."""
    alike = [(p.attempt, -p.rank) for p in profiles if p.slice_index == profile.slice_index]
    if (profile.attempt, -profile.rank) != max(alike):
        return profile
    path = trace_path(folder / f"s{profile.slice_index:05d}.a{profile.attempt:04d}", profile.rank)
    try:
        if path.stat().st_size > _MOST_TRACE_BYTES:
            problems.append(f"{path.name}: over 8 MiB, not read; `slurm-jobs profile` reads it")
            return profile
        trace = read_trace(path)
        return replace(profile, device=occupancy(trace)) if trace.has_device else profile
    except FileNotFoundError:  # the trace has been removed: the table of operators exists
        return profile
    except (OSError, DamagedFileError, ValueError) as error:
        problems.append(f"rank {profile.rank}: trace not read: {error}")
        return profile
