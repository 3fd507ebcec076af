"""Clocks of nodes, and the delay until their files are visible to each other. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_jobs.common.doctor_records import ClockFacts, NodeFacts
from slurm_jobs.doctor.model import Check, Standing
from slurm_jobs.report import words

_WARNING_S, _PROBLEM_S = 5.0, 120.0
"""Five seconds are enough to order records; munge refuses credentials that are 300 s old."""
_UNSURE_S = 5.0
_LATE_S = 5.0
_REMEDY = "report it to the site's support: `chronyc tracking` on the node shows whether it syncs"


def clock_checks(node: NodeFacts) -> Iterator[Check]:
    """Compare a node's clock with the login node's, and with that of the job's first node."""
    if node.login is not None:
        yield _clock("clock", node.login, "the login node's")
    else:
        finding = f"of the login node's clock: {node.login_reason}"
        yield Check(name="clock", standing="unknown", told=finding)
    if node.rank == 0:
        return
    if node.first is None:
        yield Check(
            name="node-clocks",
            standing="problem",
            told=node.first_reason,
            remedy="ranks meet there: see `main_addr:` of the profile, and NCCL_SOCKET_IFNAME",
        )
        return
    yield _clock("node-clocks", node.first, "the first node's")
    yield _files(node)


def _clock(name: str, clock: ClockFacts, whose: str) -> Check:
    middle, half = (clock.least_s + clock.most_s) / 2, (clock.most_s - clock.least_s) / 2
    surely = max(0.0, abs(middle) - half)
    if surely <= _WARNING_S and half > _UNSURE_S:
        finding = (
            f"within {words.seconds(abs(middle) + half)} of {whose}; a closer bound is not known"
        )
        return Check(name=name, standing="unknown", told=finding)
    if surely <= _WARNING_S:
        most = abs(middle) + half
        finding = f"within {_bound(most)} of {whose}"
        return Check(name=name, standing="ok", told=finding)
    standing: Standing = "problem" if surely > _PROBLEM_S else "warning"
    side = "behind" if middle > 0 else "ahead of"
    finding = f"{words.seconds(abs(middle))} {side} {whose} (within {words.seconds(half)})"
    return Check(name=name, standing=standing, told=finding, remedy=_REMEDY)


def _bound(seconds: float) -> str:
    """Return a round number above it, so that similar nodes get the same text."""
    bounds = {0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s"}
    return next((text for most, text in bounds.items() if seconds <= most), words.seconds(seconds))


def _files(node: NodeFacts) -> Check:
    name = "node-files"
    if node.file_s is None:
        return Check(
            name=name,
            standing="warning",
            told=f"of a file that the first node wrote, {node.first_reason}",
            remedy="ask the site for `actimeo` of this file system, or put runs_dir on another",
        )
    if node.file_s > _LATE_S:
        finding = f"a file of the first node was seen only after {words.seconds(node.file_s)}"
        remedy = "no action needed: slurm-jobs checks again for a minute"
        return Check(name=name, standing="warning", told=finding, remedy=remedy)
    finding = f"a file of the first node is seen within {_bound(node.file_s)}"
    return Check(name=name, standing="ok", told=finding)
