"""What the rules have in common: how they answer, and how they write a ceiling. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Literal, ParamSpec

from slurm_jobs.report import words
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers

OWN_CHOICE = "own choice; no published threshold is known"

ON_CPUS = "the training ran on CPUs"
"""Why a rule on GPUs has nothing to find."""

SHORT_RUN_S = 300.0
"""Jobs shorter than this are given no advice on what to ask for, nor on what surrounds their
steps: Princeton's jobstats ignores them too."""


_Numbers = ParamSpec("_Numbers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Generic[_Numbers]):
    """A judgement, and the number that it goes by; both stand in each of its answers."""

    threshold: str
    """In words."""
    source: str
    """Where the threshold comes from."""
    judge: Callable[_Numbers, Finding | Check]

    def __call__(self, *args: _Numbers.args, **kwargs: _Numbers.kwargs) -> Finding | Check:
        """What it finds, or why it finds nothing."""
        return replace(self.judge(*args, **kwargs), rule=self.threshold, source=self.source)


def rule(
    threshold: str, source: str = OWN_CHOICE
) -> Callable[[Callable[_Numbers, Finding | Check]], Rule[_Numbers]]:
    """Gives a judgement its threshold."""

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
    """What starves the ranks."""

    kind: CauseKind
    """Empty where nothing tells one from the others."""
    text: str
    evidence: tuple[str, ...]
    """Empty where nothing tells."""
    next_knob: str
    confidence: str


def clear(rule_id: str, reason: str) -> Check:
    """The rule looked and found nothing."""
    return Check(rule_id=rule_id, outcome="clear", reason=reason)


def abstain(rule_id: str, reason: str) -> Check:
    """The rule could not look."""
    return Check(rule_id=rule_id, outcome="abstained", reason=reason)


def share_of(numbers: TrainingNumbers, kind: str) -> tuple[float, float]:
    """Share of the step and mean seconds of a step phase."""
    for phase in numbers.phases:
        if phase.kind == kind:
            return phase.share, phase.seconds
    return 0.0, 0.0


def ceiling(share: float | None, what: str) -> str:
    """Amdahl's: the gain if `share` of the time were gone; None where that share is not known."""
    if share is None:
        return f"{what}: not known, because some ranks left no step records"
    return f"{what}: {words.speed_without(share)}"


def times_without(share: float) -> float | None:
    """How many times the speed it would be if `share` of the time were gone; None if all were."""
    return 1 / (1 - share) if share < 1 else None


def known_times(share: float | None) -> float | None:
    """The same, where that share is known."""
    return None if share is None else times_without(share)


def phase_evidence(numbers: TrainingNumbers, kind: str) -> tuple[str, ...]:
    """How long a step phase is, on which rank it is longest, and what that rests on."""
    share, mean_s = share_of(numbers, kind)
    worst = max(numbers.ranks, key=lambda r: r.phases_s[kind])
    return (
        f"{words.seconds(mean_s)} of a mean step, {words.percent(share)} of its time"
        + (
            f"; {words.seconds(worst.phases_s[kind])} on rank {worst.rank}, the most of all"
            if numbers.num_ranks > 1 and _same_steps(numbers)
            else ""
        ),
        (
            f"over {words.number_of('step', numbers.num_measured)} "
            f"on {words.ranks(numbers.rank_counts)}, "
            f"the first {numbers.warmup_steps} of each attempt left out"
        ),
    )


def _same_steps(numbers: TrainingNumbers) -> bool:
    """Whether every rank is there once, with as many steps: else their means are of others."""
    num_steps = {r.num_steps for r in numbers.ranks}
    return len(num_steps) == 1 and len(numbers.ranks) == numbers.num_ranks
