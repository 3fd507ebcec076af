"""Removal of waits for the profile that another rank wrote. PURE, vectorised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slurm_jobs.formats.timings.step_records import PROFILE_WRITE_SPAN
from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.steps.intervals import Interval, merge

_SPANS = frozenset({"profile_prepare", PROFILE_WRITE_SPAN})
_WAITS = (("rank_wait_s", "step_s"), ("device_rank_wait_s", "device_step_s"))
"""A wait for other ranks, and the step that contains it; NaN where no device was timed."""


def profile_times(timings: Iterable[RankTiming]) -> list[Interval]:
    """Return when one of these ranks prepared or wrote its profile."""
    return merge(
        (span["start_unix_s"], span["start_unix_s"] + span["duration_s"])
        for timing in timings
        for span in timing.spans
        if span["name"] in _SPANS
    )


def without_profile_waits(
    members: Sequence[tuple[RankTiming, np.ndarray]],
) -> list[tuple[RankTiming, np.ndarray]]:
    """Return the ranks of one attempt, with records without their waits for others' profiles.

    A rank writes its profile between two steps, while the other ranks already wait inside their
    next step. This removes that wait: their step starts when the profile is written. Otherwise it
    would look slow, or would seem to wait for a slow rank.
    """
    corrected = []
    for timing, steps in members:
        times = profile_times(other for other, _ in members if other is not timing)
        if not times:
            corrected.append((timing, steps))
            continue
        starts, ends = steps["start_unix_s"], steps["start_unix_s"] + steps["step_s"]
        overlaps = [np.minimum(ends, end) - np.maximum(starts, start) for start, end in times]
        within = np.sum([np.maximum(overlap, 0) for overlap in overlaps], axis=0)
        without: np.ndarray = steps.copy()
        without["start_unix_s"] = steps["start_unix_s"] + np.minimum(within, steps["rank_wait_s"])
        part = steps["rank_wait_data_s"]  # first in the step; NaN stays NaN
        without["rank_wait_data_s"] = part - np.minimum(within, part)
        for wait, whole in _WAITS:
            waited = np.minimum(within, steps[wait])
            without[wait] = steps[wait] - waited
            without[whole] = steps[whole] - waited
        corrected.append((timing, without))
    return corrected
