"""Reader of the timing records of a stage's attempts: steps, spans, and node readings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.formats.timings import read_operators, read_steps, read_system
from slurm_jobs.formats.timings.profiler_files import trace_path
from slurm_jobs.formats.timings.step_records import StepFile, read_spans, spans_path, steps_path
from slurm_jobs.report.inputs.record_files import list_files
from slurm_jobs.report.inputs.run_inputs import NodeReadings, ProfileTable, RankTiming
from slurm_jobs.report.inputs.step_columns import StepColumns
from slurm_jobs.report.profiles.occupancy import occupancy
from slurm_jobs.report.profiles.profile_trace import read_trace

_TIMING_FOLDER = re.compile(r"s(\d+)\.a(\d+)")
_NODE_FILE = re.compile(r"node-\d+\.system")
_MOST_TRACE_BYTES = 8 << 20
"""Compressed size; reading it takes hundreds of MiB of memory."""
_MOST_TRACE_TEXT_BYTES = 256 << 20
"""Size without compression; traces shrink to a twentieth."""
_PROFILE_FILE = re.compile(r"rank-(\d+)\.operators\.json")
_TIMING_FILE = re.compile(r"rank-(\d+)\.(steps|spans\.jsonl)")


def _attempt_folders(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield the folders with timing, each with its slice and attempt."""
    for path in list_files(folder):
        if match := _TIMING_FOLDER.fullmatch(path.name):
            yield path, int(match[1]), int(match[2])


def read_timings(folder: Path, problems: list[str], *, whole: bool) -> tuple[RankTiming, ...]:
    """Return records by slice, attempt and rank; `whole` keeps all fields of the files."""
    timings: list[RankTiming] = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        names = [_TIMING_FILE.fullmatch(path.name) for path in list_files(attempt_dir)]
        ranks = sorted({int(name[1]) for name in names if name})
        timings.extend(
            _read_rank(attempt_dir, slice_index, attempt, rank, problems, whole=whole)
            for rank in ranks
        )
    return tuple(timings)


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
        with suppress(FileNotFoundError):
            steps = read_steps(steps_file)
        if steps is not None:
            if not whole:
                columns = StepColumns.of(steps.steps)
                steps = replace(steps, steps=cast("np.ndarray", columns))  # only the used fields
            if steps.num_damaged:
                records = units.number_of("step record", steps.num_damaged)
                problems.append(
                    f"{folder.name}, rank {rank}: {records} left out, from the first damaged one on"
                )
        with suppress(FileNotFoundError):
            spans, num_damaged = read_spans(spans_file)
            if num_damaged:
                lines = units.number_of("damaged line", num_damaged)
                problems.append(f"{folder.name}, rank {rank}: {lines} of spans left out")
    except (OSError, ValueError) as error:
        problems.append(f"{folder.name}, rank {rank}: timing not read: {error}")
    return RankTiming(
        slice_index=slice_index, attempt=attempt, rank=rank, steps=steps, spans=tuple(spans)
    )


def read_readings(folder: Path, problems: list[str]) -> tuple[NodeReadings, ...]:
    """Return readings by slice, attempt and node; unreadable ones become problems."""
    readings = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        for path in list_files(attempt_dir):
            if _NODE_FILE.fullmatch(path.name) is None:
                continue
            try:
                file = read_system(path)
            except (OSError, ValueError) as error:
                problems.append(f"{attempt_dir.name}: readings of a node not read: {error}")
                continue
            if file.num_damaged:
                lost = units.number_of("reading", file.num_damaged)
                problems.append(f"{attempt_dir.name}, {path.name}: {lost} left out as damaged")
            readings.append(
                NodeReadings(
                    slice_index=slice_index,
                    attempt=attempt,
                    node=str(file.metadata.get("node_name") or path.stem),
                    metadata=file.metadata,
                    readings=file.readings,
                )
            )
    return tuple(readings)


def read_profiles(folder: Path, problems: list[str]) -> tuple[ProfileTable, ...]:
    """Return profiles by slice, attempt and rank; unreadable ones become problems."""
    profiles = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        for path in list_files(attempt_dir):
            match = _PROFILE_FILE.fullmatch(path.name)
            if match is None:
                continue
            try:
                table = read_operators(path)
            except (OSError, ValueError, TypeError, KeyError) as error:
                problems.append(f"{attempt_dir.name}, rank {match[1]}: profile not read: {error}")
                continue
            rank = int(match[1])
            profiles.append(
                ProfileTable(slice_index=slice_index, attempt=attempt, rank=rank, table=table)
            )
    return tuple(_with_device(profile, folder, profiles, problems) for profile in profiles)


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
        trace = read_trace(path, most_bytes=_MOST_TRACE_TEXT_BYTES)
        return replace(profile, device=occupancy(trace)) if trace.has_device else profile
    except FileNotFoundError:  # the trace has been removed: the table of operators exists
        return profile
    except (OSError, DamagedFileError, ValueError) as error:
        problems.append(f"rank {profile.rank}: trace not read: {error}")
        return profile
