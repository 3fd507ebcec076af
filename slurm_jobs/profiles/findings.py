"""Recommendations from a profile. PURE.

Shares are of recorded steps, which are slower than others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_jobs.profiles.occupancy import Occupancy
from slurm_jobs.report import words

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


def find(found: Occupancy, *, has_device: bool) -> tuple[ProfileFinding, ...]:
    """Return the findings by the share that each can gain, largest first."""
    if found.wall_s <= 0:
        return ()
    judges = (communication, *(ON_DEVICES.values() if has_device else ()))
    answers = [answer for judge in judges if (answer := judge(found)) is not None]
    return tuple(sorted(answers, key=lambda a: -a.share))


def overlap_text(found: Occupancy) -> str:
    """Say whether communication is hidden, and what hiding the rest could gain."""
    if found.communication_s <= 0:
        return "No collective was recorded."
    hidden = found.overlap_s / found.communication_s
    share = found.exposed_s / found.wall_s
    gain = words.speed_without(share)
    return (
        f"{words.percent(hidden)} of the communication overlaps with computation; the rest is "
        f"{words.percent(share)} of the steps, so that hiding all of it gives {gain}."
    )


def communication(found: Occupancy) -> ProfileFinding | None:
    """Find collectives without concurrent computation."""
    share = found.exposed_s / found.wall_s
    if share < EXPOSED_SHARE:
        return None
    return ProfileFinding(
        title=f"{words.percent(share)} of the steps is communication without computation",
        evidence=_a_step(found, found.exposed_s, "exposed communication"),
        rule="10 % of the step or more (PyTorch's profiler)",
        next_knob="sharding: replicate across nodes, keep gathered weights "
        "(reshard_after_forward: false) or prefetch more; a collective's time has the wait for "
        "the slowest rank in it, so look at the report's stragglers first",
        ceiling=_ceiling(share, "no exposed communication"),
        share=share,
    )


def launches(found: Occupancy) -> ProfileFinding | None:
    """Find a device that waits for the host between kernels shorter than a launch."""
    idle, short = found.idle_s / found.wall_s, found.num_short / max(1, found.num_pieces)
    if idle < _IDLE_SHARE or short < _SHORT_SHARE:
        return None
    return ProfileFinding(
        title=f"the device is idle {words.percent(idle)} of the time between short kernels",
        evidence=f"{found.num_pieces:,} kernels, {words.percent(short)} of them shorter than "
        f"a launch takes; {found.num_gaps:,} gaps, the longest "
        f"{words.seconds(found.longest_gap_s)}",
        rule=f"{LAUNCHES} (own choice)",
        next_knob="compile, a larger microbatch, fewer microbatches a step, a fused optimizer",
        ceiling=_ceiling(idle, "no idle device"),
        share=idle,
    )


def pageable(found: Occupancy) -> ProfileFinding | None:
    """Find copies for which the driver uses a staging buffer while the host waits."""
    share = found.pageable_s / found.wall_s
    if share < _PAGEABLE_SHARE:
        return None
    return ProfileFinding(
        title=f"copies through memory that is not pinned take {words.percent(share)}",
        evidence=_a_step(found, found.pageable_s, "pageable copies"),
        rule=f"{PAGEABLE} (own choice)",
        next_knob="pin what is copied: the built-in reader does; tensors of your own need "
        "pin_memory() and non_blocking=True",
        ceiling=_ceiling(share, "no pageable copies"),
        share=share,
    )


def small_copies(found: Occupancy) -> ProfileFinding | None:
    """Find many copies that take longer to start than to transfer."""
    share = found.num_small_copies / max(1, found.num_copies)
    a_step = found.num_copies / found.num_steps
    if share < _SMALL_SHARE or a_step < _SMALL_A_STEP:
        return None
    taken = found.copies_s / found.wall_s
    return ProfileFinding(
        title=f"{a_step:,.0f} copies a step, most of them small",
        evidence=f"{words.percent(share)} take less than 20 us; all take "
        f"{words.percent(taken)} of the steps, and each holds the host up that waits for it",
        rule=f"{SMALL_COPIES} (own choice)",
        next_knob="gather what goes to the device into one tensor; .item() and printed values "
        "are copies, too",
        ceiling=_ceiling(taken, "no copies"),
        share=taken,
    )


ON_DEVICES: Mapping[str, Callable[[Occupancy], ProfileFinding | None]] = {
    "kernel-launches": launches,
    "pageable-copies": pageable,
    "small-copies": small_copies,
}
"""Rules on the activity of a device, by name."""


def _a_step(found: Occupancy, seconds: float, what: str) -> str:
    steps = words.number_of("recorded step", found.num_steps)
    return f"{words.seconds(seconds / found.num_steps)} of {what} a step, over {steps}"


def _ceiling(share: float, what: str) -> str:
    return f"{what}: {words.speed_without(share)}"
