"""Rule on ranks that wait for each other. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.rules.loading.foreign_load import foreign_load
from slurm_jobs.report.rules.training.slow_node import probe_evidence
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.rank_model import Straggler
from slurm_jobs.report.values.training_model import TrainingNumbers

_LIMIT = 0.05
_SLOWEST = "In synchronous training every rank waits for the slowest in each step."
_HIDDEN = (
    "Only waits between the passes are timed separately; collectives inside forward and backward, "
    "and on GPUs the host's wait for the device, hide more: the result is a lower bound."
)


@rule(
    "straggler",
    "own work of the slowest rank over the mean of all, or extra data wait, "
    "or time waiting for other ranks: 5 % or more",
    "own measurement: dealing packs by cost takes slowest over mean from 1.055 to 1.003",
    needs_steps=True,
)
def straggler(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find the slowest rank. Equal work gives 1.003 slowest over mean, unplanned packs 1.055.

    The rule compares each rank's own work, its step without the waits for others, because
    the steps themselves take equally long on all ranks. A collective ends at the same moment
    on all ranks. So the rank that arrives last where the wait is timed was slow since the last
    collective: the right rank is named, and the delay is a lower bound.
    """
    worst = numbers.straggler
    if worst is None:
        return abstain(not_compared(numbers))
    excess = worst.data_excess_s / worst.step_mean_s if worst.step_mean_s > 0 else 0.0
    ratio = worst.slowest_over_mean
    evidence = _evidence(numbers, worst)
    confidence = "high: timed in the records"
    if isinstance(foreign_load(numbers), Finding):
        confidence = (
            "medium: timed in the records, but other processes used cores of the job meanwhile"
        )
    if ratio is not None and ratio >= 1 + _LIMIT:
        place = place_of(worst.rank, worst.node)
        return Finding(
            title=f"{place} slows down the others, most in {worst.phase}",
            text=f"{_SLOWEST} {_HIDDEN}",
            evidence=(*evidence, *probe_evidence(numbers, worst.node)),
            next_knob=_slow_place(
                numbers, place, "device clock, other jobs, loader threads, storage"
            ),
            ceiling=_evened_out(ratio),
            ceiling_times=ratio,
            confidence=confidence,
        )
    if excess >= _LIMIT:
        place = place_of(worst.data_rank, worst.data_node)
        return Finding(
            title=f"{place} slows down the others: it waits for its data",
            text=_SLOWEST,
            evidence=(*reversed(evidence), *probe_evidence(numbers, worst.data_node)),
            next_knob=_slow_place(numbers, place, "loader threads, storage, other jobs on it"),
            ceiling=ceiling(excess, f"rank {worst.data_rank} waiting no longer than the mean rank"),
            ceiling_times=times_without(excess),
            confidence=confidence,
        )
    if ratio is None:
        return abstain(
            "these step records of an older version do not time waits for other ranks separately"
        )
    waiting = numbers.phase("rank_wait").share - (numbers.meeting_share or 0.0)
    if waiting < _LIMIT:
        return clear(
            f"own work of the slowest rank over the mean: {ratio:.3f}, as far as waits are timed "
            "separately"
        )
    padding_share = numbers.padding_share.value
    return Finding(
        title=f"{units.percent(waiting)} of each step waits for slower ranks",
        text=f"No single rank is slow: a different one is last in each step. {_HIDDEN}",
        evidence=evidence,
        next_knob="Batches already have equal lengths, so check the nodes first (other jobs on "
        "them, fewer free cores than ranks and their threads). Then try larger microbatches."
        if padding_share is not None and padding_share < _LIMIT
        else "Use batches of more equal length, or fewer and larger microbatches. If data wait "
        "differs too, raise num_prefetch_batches.",
        ceiling=_evened_out(times_without(waiting)),
        ceiling_times=times_without(waiting),
    )


def not_compared(numbers: TrainingNumbers) -> str:
    """Return why no straggler can be named."""
    if numbers.num_ranks < 2:
        return "there is only one rank"
    return "no attempt has step records of all its ranks"


def place_of(rank: int, node: str) -> str:
    """Return the rank and, if it is known, its node."""
    return f"rank {rank}" + (f" on {node}" if node else "")


def _evidence(numbers: TrainingNumbers, worst: Straggler) -> tuple[str, ...]:
    data = (
        f"Rank {worst.data_rank} waits {units.seconds(worst.data_excess_s)} per step longer for "
        "its data than the mean rank."
    )
    if worst.slowest_over_mean is None:
        return (data,)
    rank_wait = numbers.phase("rank_wait")
    meeting = numbers.meeting_share
    exchange = "" if meeting is None else f" The exchange itself takes {units.percent(meeting)}."
    waits = (
        f"A mean rank waits {units.seconds(rank_wait.seconds)} per step for others, "
        f"{units.percent(rank_wait.share)} of it."
    )
    own_work = (
        f"The own work of rank {worst.rank} over the mean of all is {worst.slowest_over_mean:.3f}. "
        f"Most of the excess is in {worst.phase}, which takes "
        f"{units.seconds(worst.phase_excess_s)} per step longer than on the mean rank."
    )
    return (own_work, f"{waits}{exchange}", data)


def _evened_out(factor: float | None) -> str:
    """Return the gain of even work by the timed waits: no ceiling, because others are not timed."""
    gain = "not known" if factor is None else f"about {factor:.2f} times the speed"
    return f"equal work in each step: {gain}; more where waits are hidden"


def _slow_place(numbers: TrainingNumbers, place: str, what: str) -> str:
    """Return what to check: the rank's node, unless all ranks are on that one."""
    nodes = {rank.node for rank in numbers.ranks}
    if len(nodes) == 1:
        return (
            f"All ranks are on {nodes.pop()}. Check what only {place} uses there (its device and "
            "the nearest cores, its part of the data) and what else runs there (other jobs, "
            "fewer free cores than ranks and their threads)."
        )
    return f"Check the node of {place} ({what}). If it stays slow, exclude it with slurm.exclude."
