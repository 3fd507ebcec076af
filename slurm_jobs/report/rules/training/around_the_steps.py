"""Rules on time outside the training steps, and on unexplained time. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import (
    SHORT_RUN_S,
    abstain,
    ceiling,
    clear,
    phase_evidence,
    rule,
)
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

AROUND_KINDS = frozenset({"startup", "unexplained", "between"})
"""Parts of the attempts' time outside the steps."""


@rule("around-the-steps", "time outside the steps is a quarter of the attempts' time or more")
def around_steps(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find attempts that spend a quarter of their time outside the training steps."""
    outside = [s for s in numbers.budget if s.kind in AROUND_KINDS]
    share = sum(s.share for s in outside)
    whole_s = sum(s.seconds for s in numbers.budget)
    if whole_s < SHORT_RUN_S:
        return abstain(f"the attempts took {units.seconds(whole_s)} in all, under 300 s")
    if share < 0.25:
        return clear(f"{units.percent(share)} of the attempts' time is outside the steps")
    largest = sorted(outside, key=lambda s: -s.seconds)[:3]
    return Finding(
        severity="medium" if share >= 0.5 else "note",
        title=f"{units.percent(share)} of the attempts' time is outside the steps",
        text="Start-up, staging, export and evaluation take a larger share of jobs that are short "
        "or stop often.",
        evidence=tuple(
            f"{s.name}: {units.seconds(s.seconds)}, {units.percent(s.share)}" for s in largest
        ),
        next_knob=f"Shorten {largest[0].name}. Fewer and longer attempts spread it over more "
        "steps.",
        ceiling=ceiling(share, "only steps"),
    )


@rule("unexplained", "unexplained time is 10 % of the step or more", needs_steps=True)
def unexplained_time(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find time of 10 % of the step that no phase explains."""
    share = numbers.phase("unexplained").share
    if share < 0.10:
        return clear(f"{units.percent(share)} of the step is unexplained")
    return Finding(
        severity="note",
        title=f"{units.percent(share)} of each step is unexplained",
        text="No timed phase covers this time of the host, so the other shares are lower bounds.",
        evidence=phase_evidence(numbers, "unexplained"),
        next_knob="Profile a few steps (`profile: {steps: [20, 40]}`) to see what runs between the "
        "phases.",
        ceiling="not known: its cause is unknown",
    )
