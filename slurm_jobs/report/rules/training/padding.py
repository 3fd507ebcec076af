"""Rule on token slots that are padding. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers


@rule(
    "padding",
    "padding of 5 % or more of the token slots (20 %: high)",
    "own measurement on 65,536 items: greedy packing 11 %, best-fit (1,024 items) 1.5 %",
)
def padding(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find padding of 5 % or more: best-fit packing leaves 1.5 %, greedy packing 11 %."""
    share = numbers.padding_share.value
    if share is None:
        return abstain(numbers.padding_share.missing)
    if numbers.too_few:
        return abstain(numbers.too_few)
    if share < 0.05:
        return clear(f"{units.percent(share)} of the token slots are padding")
    critical = numbers.critical_shares.get("padding")
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{units.percent(share)} of the tokens computed are padding",
        text="The devices compute on tokens from which the model learns nothing.",
        evidence=(
            (
                f"{units.quantity(numbers.num_tokens)} are real, and padding takes "
                f"{units.percent(share)} of all token slots."
            ),
        ),
        next_knob="Run `slurm-jobs packing`, which compares the ways of batching on this data. "
        "Then set batching.kind (packed, grouped) or batching.max_tokens.",
        ceiling=ceiling(critical, "no padding, if a padded token costs as much as a real one"),
        ceiling_times=times_without(critical),
    )
