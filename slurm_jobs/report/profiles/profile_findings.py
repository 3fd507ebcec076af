"""Recommendations from a profile.

Shares are of recorded steps, which are slower than others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_jobs.base import units
from slurm_jobs.report.profiles.occupancy import Occupancy

EXPOSED_SHARE = 0.10
"""PyTorch's profiler calls communication of 10 % of a step or more a bottleneck."""
_IDLE_SHARE = 0.20
_SHORT_SHARE = 0.50
_PAGEABLE_SHARE = 0.01
_SMALL_SHARE, _SMALL_A_STEP = 0.80, 50

LAUNCHES = "idle for 20 % of the profiled steps or more, and half of the kernels under 10 us"
PAGEABLE = "copies that are not pinned take 1 % of the profiled steps or more"
SMALL_COPIES = "50 copies a profiled step or more, of which 80 % take under 20 us"
"""The thresholds in words; all three are our choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFinding:
    """Recommendation from a profile."""

    title: str
    evidence: str
    rule: str
    next_knob: str
    ceiling: str
    share: float
    """Upper bound of the gain, as a share of the recorded steps."""


def find(profile: Occupancy, *, has_device: bool) -> tuple[ProfileFinding, ...]:
    """Return the findings by the share that each can gain, largest first."""
    if profile.wall_s <= 0:
        return ()
    judges = (communication, *(ON_DEVICES.values() if has_device else ()))
    answers = [answer for judge in judges if (answer := judge(profile)) is not None]
    return tuple(sorted(answers, key=lambda a: -a.share))


def overlap_text(profile: Occupancy) -> str:
    """Say whether communication is hidden, and what hiding the rest could gain."""
    if profile.communication_s <= 0:
        return "No collective was recorded."
    hidden = profile.overlap_s / profile.communication_s
    share = profile.exposed_s / profile.wall_s
    gain = units.speed_without(share)
    return (
        f"{units.percent(hidden)} of the communication overlaps with computation; the rest is "
        f"{units.percent(share)} of the steps, so that hiding all of it gives {gain}."
    )


def communication(profile: Occupancy) -> ProfileFinding | None:
    """Find collectives without concurrent computation."""
    share = profile.exposed_s / profile.wall_s
    if share < EXPOSED_SHARE:
        return None
    return ProfileFinding(
        title=f"{units.percent(share)} of the steps is communication without computation",
        evidence=_a_step(profile, profile.exposed_s, "exposed communication"),
        rule="10 % of the step or more (PyTorch's profiler)",
        next_knob="Look at the report's stragglers first, because a collective's time includes the "
        "wait for the slowest rank. Then change `sharding`: replicate across nodes, keep gathered "
        "weights (reshard_after_forward: false) or prefetch more.",
        ceiling=_ceiling(share, "no exposed communication"),
        share=share,
    )


def launches(profile: Occupancy) -> ProfileFinding | None:
    """Find a device that waits for the host between kernels shorter than a launch."""
    idle, short = profile.idle_s / profile.wall_s, profile.num_short / max(1, profile.num_pieces)
    if idle < _IDLE_SHARE or short < _SHORT_SHARE:
        return None
    return ProfileFinding(
        title=f"the device is idle {units.percent(idle)} of the time between short kernels",
        evidence=f"{profile.num_pieces:,} kernels, {units.percent(short)} of them shorter than "
        f"a launch takes; {profile.num_gaps:,} gaps, the longest "
        f"{units.seconds(profile.longest_gap_s)}",
        rule=f"{LAUNCHES} (own choice)",
        next_knob="Try compile, a larger microbatch, fewer microbatches per step, or a fused "
        "optimizer.",
        ceiling=_ceiling(idle, "no idle device"),
        share=idle,
    )


def pageable(profile: Occupancy) -> ProfileFinding | None:
    """Find copies for which the driver uses a staging buffer while the host waits."""
    share = profile.pageable_s / profile.wall_s
    if share < _PAGEABLE_SHARE:
        return None
    return ProfileFinding(
        title=f"copies through memory that is not pinned take {units.percent(share)}",
        evidence=_a_step(profile, profile.pageable_s, "pageable copies"),
        rule=f"{PAGEABLE} (own choice)",
        next_knob="Pin what is copied. The built-in reader does, but tensors of your own need "
        "pin_memory() and non_blocking=True.",
        ceiling=_ceiling(share, "no pageable copies"),
        share=share,
    )


def small_copies(profile: Occupancy) -> ProfileFinding | None:
    """Find many copies that take longer to start than to transfer."""
    share = profile.num_small_copies / max(1, profile.num_copies)
    a_step = profile.num_copies / profile.num_steps
    if share < _SMALL_SHARE or a_step < _SMALL_A_STEP:
        return None
    copy_share = profile.copies_s / profile.wall_s
    return ProfileFinding(
        title=f"{a_step:,.0f} copies a step, most of them small",
        evidence=f"{units.percent(share)} take less than 20 us; all take "
        f"{units.percent(copy_share)} of the steps, and each delays the host, which waits for it",
        rule=f"{SMALL_COPIES} (own choice)",
        next_knob="Gather what goes to the device into one tensor. .item() and printed values are "
        "copies, too.",
        ceiling=_ceiling(copy_share, "no copies"),
        share=copy_share,
    )


ON_DEVICES: Mapping[str, Callable[[Occupancy], ProfileFinding | None]] = {
    "kernel-launches": launches,
    "pageable-copies": pageable,
    "small-copies": small_copies,
}
"""Rules on the activity of a device, by name."""


def _a_step(profile: Occupancy, seconds: float, what: str) -> str:
    steps = units.number_of("recorded step", profile.num_steps)
    return f"{units.seconds(seconds / profile.num_steps)} of {what} a step, over {steps}"


def _ceiling(share: float, what: str) -> str:
    return f"{what}: {units.speed_without(share)}"
