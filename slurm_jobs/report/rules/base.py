"""Base of the rules: their answers, and the form of a ceiling. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, ParamSpec

from slurm_jobs.base import units
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

OWN_CHOICE = "own choice; no published threshold is known"

ON_CPUS = "the training ran on CPUs"
"""Reason why a rule on GPUs does not apply."""

SHORT_RUN_S = 300.0
"""Shorter jobs get no advice on requests or on the time around their steps: Princeton's jobstats
ignores them too."""
_Numbers = ParamSpec("_Numbers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Generic[_Numbers]):
    """Function that judges, with its threshold and source, which each answer contains."""

    name: str
    threshold: str
    """In words."""
    source: str
    """Source of the threshold."""
    judge: Callable[_Numbers, Finding | RuleOutcome]
    gpus_only: bool
    needs_steps: bool

    def __call__(self, *args: _Numbers.args, **kwargs: _Numbers.kwargs) -> Finding | RuleOutcome:
        """Return a finding, or the reason for none, with the stage of the first argument."""
        numbers = args[0]
        answer: Finding | RuleOutcome
        if self.gpus_only and isinstance(numbers, TrainingNumbers) and numbers.device == "cpu":
            answer = clear(ON_CPUS)
        elif self.needs_steps and isinstance(numbers, TrainingNumbers) and numbers.too_few:
            answer = abstain(numbers.too_few)
        else:
            answer = self.judge(*args, **kwargs)
        stage = getattr(numbers, "stage", "")
        if stage and isinstance(answer, Finding):
            answer = replace(answer, title=f"{answer.title} ({stage})")
        rule_id = f"{self.name}:{stage}" if stage else self.name
        return replace(answer, rule_id=rule_id, rule=self.threshold, source=self.source)


def rule(
    name: str,
    threshold: str,
    source: str = OWN_CHOICE,
    *,
    gpus_only: bool = False,
    needs_steps: bool = False,
) -> Callable[[Callable[_Numbers, Finding | RuleOutcome]], Rule[_Numbers]]:
    """Make a rule of a function that judges; the rule adds stage, threshold and source.

    Args:
        name: the rule's id without the stage.
        threshold: in words.
        source: source of the threshold.
        gpus_only: the rule is clear for a training on CPUs.
        needs_steps: the rule abstains if there are too few steps.
    """

    def with_threshold(judge: Callable[_Numbers, Finding | RuleOutcome]) -> Rule[_Numbers]:
        return Rule(
            name=name,
            threshold=threshold,
            source=source,
            judge=judge,
            gpus_only=gpus_only,
            needs_steps=needs_steps,
        )

    return with_threshold


def clear(reason: str) -> RuleOutcome:
    """Return the check of a rule that found nothing."""
    return RuleOutcome(outcome="clear", reason=reason)


def abstain(reason: str) -> RuleOutcome:
    """Return the check of a rule that lacked data."""
    return RuleOutcome(outcome="abstained", reason=reason)


def ceiling(share: float | None, what: str) -> str:
    """Return in words the gain by Amdahl's law without `share` of the time (None: unknown)."""
    if share is None:
        return f"{what}: not known, because some ranks left no step records"
    return f"{what}: {units.speed_without(share)}"


def times_without(share: float | None) -> float | None:
    """Return the speed factor if `share` of the time were gone; None if unknown or all of it."""
    return 1 / (1 - share) if share is not None and share < 1 else None


def phase_evidence(numbers: TrainingNumbers, kind: str) -> tuple[str, ...]:
    """Return the length of a step phase, the rank with the longest, and the number of steps."""
    phase = numbers.phase(kind)
    what = "Unexplained time" if kind == "unexplained" else kind.replace("_", " ").capitalize()
    length = (
        f"{what} takes {units.seconds(phase.seconds)} of a mean step ({units.percent(phase.share)})"
    )
    # Means are comparable if every rank occurs once, with equally many steps.
    has_same_steps = len({r.num_steps for r in numbers.ranks}) == 1
    if 1 < numbers.num_ranks == len(numbers.ranks) and has_same_steps:
        worst = max(numbers.ranks, key=lambda r: r.phases_s[kind])
        worst_s = units.seconds(worst.phases_s[kind])
        length += f", and {worst_s} on rank {worst.rank}, the slowest"
    return (
        f"{length}.",
        (
            f"The means are over {units.number_of('step', numbers.num_measured)} on "
            f"{units.ranks(numbers.rank_counts)}, without the first {numbers.warmup_steps} of each "
            "attempt."
        ),
    )
