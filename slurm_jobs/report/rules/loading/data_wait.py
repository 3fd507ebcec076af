"""Rule on steps that wait for data. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import (
    ceiling,
    clear,
    phase_evidence,
    rule,
    times_without,
)
from slurm_jobs.report.rules.loading.loader_threads import CAUSE_TITLES
from slurm_jobs.report.rules.loading.node_cores import find_cause
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers


@rule(
    "data-wait",
    "data wait below 5 % of the step is fine, up to 20 % moderate, above that high",
    "XProf, input-pipeline analysis",
    needs_steps=True,
)
def data_wait(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find waits for data. XProf: < 5 % of the step is fine, to 20 % moderate, then high."""
    share = numbers.phase("data_wait").share
    if share < 0.05:
        return clear(f"{units.percent(share)} of the step waits for data, under 5 %")
    cause = find_cause(numbers)
    because = f": {CAUSE_TITLES[cause.kind]}" if cause.kind else ""
    critical = numbers.critical_shares.get("data_wait")
    degree = "highly" if share >= 0.20 else "moderately"
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{units.percent(share)} of each step waits for data{because}",
        text=f"The training is {degree} input-bound: the ranks wait for the loader. "
        f"{cause.text}".rstrip(),
        evidence=(*phase_evidence(numbers, "data_wait"), *cause.evidence),
        next_knob=cause.next_knob,
        ceiling=ceiling(critical, "no data wait"),
        ceiling_times=times_without(critical),
        confidence=cause.confidence,
        cause=cause.kind,
    )
