"""What tells the ranks of one training apart: PURE, vectorised over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slurm_jobs.common.timings import STEP_PHASES
from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.model_training import RankNumbers, Straggler
from slurm_jobs.report.model_values import TimeShare
from slurm_jobs.report.numbers_steps import AttemptSteps

PHASE_KINDS = tuple(name.removesuffix("_s") for name in STEP_PHASES[:-1])
"""The named step phases; the rest of a step is `unexplained`."""

PHASE_NAMES = {"rank_wait": "waiting for other ranks"}
"""What a step phase is called where its kind does not say it."""


def phase_name(kind: str) -> str:
    """A step phase as readers know it."""
    return PHASE_NAMES.get(kind, kind.replace("_", " "))


def rank_numbers(attempts: Sequence[AttemptSteps]) -> tuple[RankNumbers, ...]:
    """Each rank's mean step and step phases over the measured steps."""
    by_rank: dict[int, list[tuple[RankTiming, np.ndarray]]] = {}
    for attempt in attempts:
        for index, timing in enumerate(attempt.ranks):
            records = attempt.measured(index)
            if len(records):
                by_rank.setdefault(timing.rank, []).append((timing, records))
    return tuple(_one_rank(rank, by_rank[rank]) for rank in sorted(by_rank))


def _one_rank(rank: int, members: Sequence[tuple[RankTiming, np.ndarray]]) -> RankNumbers:
    records = [r for _, r in members]
    count = sum(len(r) for r in records)

    def mean(name: str) -> float:
        return float(sum(r[name].sum(dtype=np.float64) for r in records)) / count

    phases = {kind: mean(f"{kind}_s") for kind in PHASE_KINDS}
    step_mean = mean("step_s")
    phases["unexplained"] = step_mean - sum(phases.values())
    last = members[-1][0]
    return RankNumbers(
        rank=rank,
        node=str(last.steps.metadata.get("node_name", "")) if last.steps else "",
        step_mean_s=step_mean,
        step_p95_s=float(np.percentile(np.concatenate([r["step_s"] for r in records]), 95)),
        own_mean_s=step_mean - phases["rank_wait"],
        phases_s=phases,
    )


def mean_phases(ranks: Sequence[RankNumbers]) -> tuple[TimeShare, ...]:
    """Mean over the ranks; they do the same number of steps, so each weighs the same."""
    if not ranks:
        return ()
    step_mean = _mean([r.step_mean_s for r in ranks])
    means: Mapping[str, float] = {
        kind: _mean([r.phases_s[kind] for r in ranks]) for kind in (*PHASE_KINDS, "unexplained")
    }
    return tuple(
        TimeShare(
            name=phase_name(kind),
            kind=kind,
            seconds=seconds,
            share=seconds / step_mean if step_mean > 0 else 0.0,
        )
        for kind, seconds in means.items()
    )


def find_straggler(
    attempts: Sequence[AttemptSteps], ranks: Sequence[RankNumbers]
) -> Straggler | None:
    """Who does most and who waits longest for data; None for a single rank."""
    if len(ranks) < 2:
        return None
    slowest = max(ranks, key=lambda r: r.own_mean_s)
    mean_own = _mean([r.own_mean_s for r in ranks])
    excess = {
        kind: slowest.phases_s[kind] - _mean([r.phases_s[kind] for r in ranks])
        for kind in slowest.phases_s
        if kind != "rank_wait"
    }
    phase = max(excess, key=lambda kind: excess[kind])
    waiting = max(ranks, key=lambda r: r.phases_s["data_wait"])
    mean_wait = _mean([r.phases_s["data_wait"] for r in ranks])
    ratio = slowest.own_mean_s / mean_own if mean_own > 0 else 1.0
    return Straggler(
        rank=slowest.rank,
        node=slowest.node,
        slowest_over_mean=ratio if _tell_waits(attempts) else None,
        phase=phase_name(phase),
        phase_excess_s=excess[phase],
        data_rank=waiting.rank,
        data_node=waiting.node,
        data_excess_s=waiting.phases_s["data_wait"] - mean_wait,
    )


def _tell_waits(attempts: Sequence[AttemptSteps]) -> bool:
    """Whether all records time the waits for other ranks apart; older versions did not."""
    files = [timing.steps for attempt in attempts for timing in attempt.ranks]
    return not any("rank_wait_s" in file.lacking for file in files if file is not None)


def critical_shares(attempts: Sequence[AttemptSteps]) -> dict[str, float]:
    """The most of the measured time that each step phase can have cost; see `TrainingNumbers`.

    The ranks meet in every step, so the step waits for one rank at a time:
    without a phase it is shorter by no more than the longest that any rank
    spends in it. That rank may be another in each step. A padded token counts
    as much as a real one.
    """
    whole = [a for a in attempts if len(a.ranks) == a.num_ranks and a.num_measured]
    wall_s = sum(a.measured_s() for a in whole)
    if wall_s <= 0:
        return {}
    longest = dict.fromkeys((*PHASE_KINDS, "padding"), 0.0)
    for attempt in whole:
        ranks = [attempt.measured(i) for i in range(len(attempt.ranks))]
        for kind in PHASE_KINDS:
            most = np.max([r[f"{kind}_s"] for r in ranks], axis=0)
            longest[kind] += float(most.sum(dtype=np.float64))
        padded = np.max([_padded(r) for r in ranks], axis=0)
        step_s = np.max([r["step_s"] for r in ranks], axis=0)
        longest["padding"] += float((padded * step_s).sum(dtype=np.float64))
    return {kind: min(1.0, seconds / wall_s) for kind, seconds in longest.items()}


def _padded(steps: np.ndarray) -> np.ndarray:
    """Share of the token slots that are padding, by step."""
    padding = steps["num_padding_tokens"].astype(np.float64)
    slots = padding + steps["num_tokens"]
    share: np.ndarray = np.divide(padding, slots, out=np.zeros_like(padding), where=slots > 0)
    return share


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
