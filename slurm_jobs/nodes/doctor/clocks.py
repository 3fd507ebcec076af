"""Clocks of nodes, and the delay until their files are visible to each other. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import ClockFacts, NodeFacts
from slurm_jobs.nodes.doctor.doctor_check import Judgement, Standing
from slurm_jobs.nodes.doctor.site_facts import SpecFacts

_WARNING_S, _PROBLEM_S = 5.0, 120.0
"""Five seconds are enough to order records; munge refuses credentials that are 300 s old."""
_LATE_S = 5.0


def login_clock(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    """Compare a node's clock with the login node's."""
    if node.login is None:
        return Judgement("unknown", f"not compared with the login node: {node.login_reason}")
    return _clock(node.login, "the login node's")


def first_clock(node: NodeFacts, _spec: SpecFacts) -> Judgement | None:
    """Compare a node's clock with that of the job's first node."""
    if node.rank == 0:
        return None
    if node.first is None:
        remedy = "ranks meet there: see `main_addr:` of the profile, and NCCL_SOCKET_IFNAME"
        return Judgement("problem", node.first_reason, remedy)
    return _clock(node.first, "the first node's")


def first_file(node: NodeFacts, _spec: SpecFacts) -> Judgement | None:
    """Judge how late a node saw a file of the job's first node."""
    if node.rank == 0 or node.first is None:
        return None
    if node.file_s is None:
        finding = f"waited for a file of the first node: {node.first_reason}"
        remedy = "ask the site for `actimeo` of this file system, or put runs_dir on another"
        return Judgement("warning", finding, remedy)
    if node.file_s > _LATE_S:
        finding = f"a file of the first node was seen only after {units.seconds(node.file_s)}"
        remedy = "no action needed: slurm-jobs checks again for a minute"
        return Judgement("warning", finding, remedy)
    return Judgement("ok", f"a file of the first node is seen within {_bound(node.file_s)}")


def _clock(clock: ClockFacts, whose: str) -> Judgement:
    middle, half, standing = clock_difference(clock.least_s, clock.most_s)
    most = abs(middle) + half
    if standing == "ok" and half > _WARNING_S:
        finding = f"within {units.seconds(most)} of {whose}; a closer bound is not known"
        return Judgement("unknown", finding)
    if standing == "ok":
        return Judgement("ok", f"within {_bound(most)} of {whose}")
    side = "behind" if middle > 0 else "ahead of"
    finding = f"{units.seconds(abs(middle))} {side} {whose} (within {units.seconds(half)})"
    remedy = (
        "report it to the site's support: `chronyc tracking` on the node shows whether it syncs"
    )
    return Judgement(standing, finding, remedy)


def clock_difference(least_s: float, most_s: float) -> tuple[float, float, Standing]:
    """Return the middle of the bounds of a clock's difference, half their width, and a standing."""
    middle, half = (least_s + most_s) / 2, (most_s - least_s) / 2
    surely = max(0.0, abs(middle) - half)
    if surely <= _WARNING_S:
        return middle, half, "ok"
    return middle, half, "problem" if surely > _PROBLEM_S else "warning"


def _bound(seconds: float) -> str:
    """Return a round number above it, so that similar nodes get the same text."""
    bounds = {0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s"}
    return next((text for most, text in bounds.items() if seconds <= most), units.seconds(seconds))
