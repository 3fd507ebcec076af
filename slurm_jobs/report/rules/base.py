"""Base of the rules: their answers, and the form of a ceiling. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Literal, ParamSpec

from slurm_jobs.report.report_model import Check, Finding, TrainingNumbers
from slurm_jobs.shared import units

OWN_CHOICE = "own choice; no published threshold is known"

ON_CPUS = "the training ran on CPUs"
"""Reason why a rule on GPUs does not apply."""

SHORT_RUN_S = 300.0
"""Shorter jobs get no advice on requests or on the time around their steps: Princeton's jobstats
ignores them too."""


_Numbers = ParamSpec("_Numbers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Generic[_Numbers]):
    """Judgement and its threshold; each answer contains both."""

    threshold: str
    """Threshold in words."""
    source: str
    """Source of the threshold."""
    judge: Callable[_Numbers, Finding | Check]

    def __call__(self, *args: _Numbers.args, **kwargs: _Numbers.kwargs) -> Finding | Check:
        """Return a finding, or the reason for none."""
        return replace(self.judge(*args, **kwargs), rule=self.threshold, source=self.source)


def rule(
    threshold: str, source: str = OWN_CHOICE
) -> Callable[[Callable[_Numbers, Finding | Check]], Rule[_Numbers]]:
    """Attach a threshold to a judgement."""

    def with_threshold(judge: Callable[_Numbers, Finding | Check]) -> Rule[_Numbers]:
        return Rule(threshold=threshold, source=source, judge=judge)

    return with_threshold


CauseKind = Literal["storage", "decoding", "cores", "threads", "read-ahead", "lock", ""]

CAUSE_TITLES: dict[CauseKind, str] = {
    "storage": "storage answers late",
    "decoding": "decoding takes the cores",
    "cores": "the loader finds no free core",
    "threads": "too few loader threads",
    "read-ahead": "too few batches are read ahead",
    "lock": "the loader's threads hold one another up",
    "": "",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Cause of waits for data."""

    kind: CauseKind
    """Empty if no evidence identifies it."""
    text: str
    evidence: tuple[str, ...]
    """Empty if there is none."""
    next_knob: str
    confidence: str


def clear(rule_id: str, reason: str) -> Check:
    """Return the check of a rule that found nothing."""
    return Check(rule_id=rule_id, outcome="clear", reason=reason)


def abstain(rule_id: str, reason: str) -> Check:
    """Return the check of a rule that lacked data."""
    return Check(rule_id=rule_id, outcome="abstained", reason=reason)


def share_of(numbers: TrainingNumbers, kind: str) -> tuple[float, float]:
    """Return the share of the step and the mean seconds of a step phase."""
    for phase in numbers.phases:
        if phase.kind == kind:
            return phase.share, phase.seconds
    return 0.0, 0.0


def ceiling(share: float | None, what: str) -> str:
    """Return the gain by Amdahl's law if `share` of the time were gone; None if it is unknown."""
    if share is None:
        return f"{what}: not known, because some ranks left no step records"
    return f"{what}: {units.speed_without(share)}"


def times_without(share: float) -> float | None:
    """Return the speed factor if `share` of the time were gone; None if that is all of it."""
    return 1 / (1 - share) if share < 1 else None


def known_times(share: float | None) -> float | None:
    """Return the speed factor if the share is known."""
    return None if share is None else times_without(share)


def phase_evidence(numbers: TrainingNumbers, kind: str) -> tuple[str, ...]:
    """Return the length of a step phase, the rank with the longest, and what it rests on."""
    share, mean_s = share_of(numbers, kind)
    worst = max(numbers.ranks, key=lambda r: r.phases_s[kind])
    return (
        f"{units.seconds(mean_s)} of a mean step, {units.percent(share)} of its time"
        + (
            f"; {units.seconds(worst.phases_s[kind])} on rank {worst.rank}, the most of all"
            if numbers.num_ranks > 1 and _same_steps(numbers)
            else ""
        ),
        (
            f"over {units.number_of('step', numbers.num_measured)} "
            f"on {units.ranks(numbers.rank_counts)}, "
            f"the first {numbers.warmup_steps} of each attempt left out"
        ),
    )


def _same_steps(numbers: TrainingNumbers) -> bool:
    """Check whether every rank occurs once, with equal steps, so that means are comparable."""
    num_steps = {r.num_steps for r in numbers.ranks}
    return len(num_steps) == 1 and len(numbers.ranks) == numbers.num_ranks
