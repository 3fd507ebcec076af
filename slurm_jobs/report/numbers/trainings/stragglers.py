"""Rank that slows down the others, and its node. PURE.

A rank is compared with the mean of all ranks of the same attempt: other attempts may have more
ranks, longer steps, or different nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_jobs.report.numbers.trainings.rank_numbers import PHASE_KINDS, AttemptMeans, phase_name
from slurm_jobs.report.values.rank_model import Straggler

_NAMED_SHARE = 0.25
"""Nodes are named if a rank lost at least this share of its loss on its worst node: noise would
name others, too. Own choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Slow:
    """Loss of one rank against the mean rank."""

    rank: int
    nodes: tuple[str, ...]
    """The worst first; empty if it lost on none."""
    excess_s: float
    """Sum over these nodes and their steps."""


def find_straggler(means: Sequence[AttemptMeans]) -> Straggler | None:
    """Return the rank with most work and the one that waits longest for data, over all attempts.

    Attempts with missing ranks are left out. None if there is nothing to compare.
    """
    whole = [m for m in means if m.is_whole]
    if max((len(m.members) for m in whole), default=0) < 2:
        return None
    num_steps = sum(m.num_steps for m in whole)
    waiting = _slowest(whole, lambda m: _over(m, "data_wait"))
    ways = [_slowest(whole, lambda m: _over(m, "own")), _slowest(whole, _late_before_backward)]
    slowest = max(ways, key=lambda slow: slow.excess_s)
    kinds = [kind for kind in (*PHASE_KINDS, "unexplained") if kind != "rank_wait"]
    excess = {kind: _excess_on(whole, kind, slowest) / num_steps for kind in kinds}
    phase = max(excess, key=lambda kind: excess[kind])
    own_s = _total(whole, "own")
    ratio = 1 + slowest.excess_s / own_s if own_s > 0 else 1.0
    return Straggler(
        rank=slowest.rank,
        node=_names(slowest.nodes),
        slowest_over_mean=ratio if all(m.tells_waits for m in whole) else None,
        phase=phase_name(phase),
        phase_excess_s=excess[phase],
        data_rank=waiting.rank,
        data_node=_names(waiting.nodes),
        data_excess_s=waiting.excess_s / num_steps,
        step_mean_s=_total(whole, "step") / num_steps,
    )


def _over(m: AttemptMeans, kind: str) -> np.ndarray:
    """Return the excess of each rank over the mean rank, seconds per step: [members]."""
    values = m.means[kind]
    over: np.ndarray = values - values.mean()
    return over


def _late_before_backward(m: AttemptMeans) -> np.ndarray:
    """Return the excess before the backward pass for which the others waited in that pass.

    The collectives of a backward pass end on all ranks at the same time, so the others wait there
    for a rank that was late before. So its lateness counts as far as its backward pass is shorter
    than the mean. On a GPU a host that queues its work more slowly looks the same without holding
    up others; the two are indistinguishable.
    """
    if not m.is_on_cpu:
        return np.zeros(len(m.members))
    late = _over(m, "host_to_device") + _over(m, "forward")
    held_up: np.ndarray = np.clip(np.minimum(late, -_over(m, "backward")), 0.0, None)
    return held_up


def _slowest(whole: Sequence[AttemptMeans], over_of: Callable[[AttemptMeans], np.ndarray]) -> _Slow:
    """Return the rank that lost most; gains on other nodes do not compensate the others' wait."""
    lost: dict[int, dict[str, float]] = {}
    for m in whole:
        over = over_of(m) * m.num_steps
        for (rank, node), seconds in zip(m.members, over.tolist(), strict=True):
            nodes = lost.setdefault(rank, {})
            nodes[node] = nodes.get(node, 0.0) + seconds
    slow = []
    for rank in sorted(lost):
        nodes, worst = lost[rank], max(lost[rank].values())
        named = [n for n in nodes if worst > 0 and nodes[n] >= _NAMED_SHARE * worst]
        named.sort(key=lambda node: -lost[rank][node])
        excess_s = sum(nodes[node] for node in named)
        slow.append(_Slow(rank=rank, nodes=tuple(named), excess_s=excess_s))
    return max(slow, key=lambda each: each.excess_s)


def _excess_on(whole: Sequence[AttemptMeans], kind: str, slow: _Slow) -> float:
    """Return the excess in a step phase where the rank was slow, seconds."""
    return sum(
        float(_over(m, kind)[index]) * m.num_steps
        for m in whole
        for index, (rank, node) in enumerate(m.members)
        if rank == slow.rank and node in slow.nodes
    )


def _total(whole: Sequence[AttemptMeans], kind: str) -> float:
    """Return the seconds of a mean rank over all steps."""
    return sum(float(m.means[kind].mean()) * m.num_steps for m in whole)


def _names(nodes: Sequence[str]) -> str:
    """Return `n7`, `n7 and n9`; for more than three, that there are more."""
    known = [node for node in nodes if node]
    if len(known) > 3:
        return f"{', '.join(known[:3])} and {len(known) - 3} more nodes"
    return " and ".join(filter(None, (", ".join(known[:-1]), *known[-1:])))
