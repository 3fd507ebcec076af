"""Rule on the exchanges of the ranks between the passes of a step. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_LIMIT = 0.05


@rule(
    "meetings",
    "exchanges between the passes, each timed on its last rank: together 5 % of the step or more",
    needs_steps=True,
)
def meetings(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find exchanges between the passes that cost time even on the rank that arrives last."""
    share = numbers.meeting_share
    if max(numbers.rank_counts, default=1) == 1:
        return clear("there is only one rank")
    if share is None:
        return abstain("this needs records of all ranks that time waits for other ranks separately")
    if share < _LIMIT:
        return clear(f"{units.percent(share)} of the step, under 5 %")
    mean_s = share * sum(phase.seconds for phase in numbers.phases)
    if numbers.meetings_apart:
        on_rank = "for both synchronisations, measured on the last rank to arrive"
        confidence = "high: each exchange is timed separately"
    else:
        on_rank = "on the rank that waits least, because it came last"
        confidence = (
            "medium: these records, of an older version, combine the two exchanges of a step; if "
            "different ranks are last in them, a part of it is a wait for slower ranks"
        )
    return Finding(
        title=f"{units.percent(share)} of each step is spent on exchanges of the ranks",
        text="Twice a step the ranks exchange a few numbers. The time for that does not depend on "
        "how much a step computes. Collectives within the passes have the same fixed cost, which "
        "is not timed separately.",
        evidence=(f"This takes {units.seconds(mean_s)} per step {on_rank}.",),
        next_knob="Do more work per step (global_batch_size, with a matching learning rate), leave "
        "a core of each node free for the communication threads, or use fewer ranks.",
        ceiling=ceiling(share, "no time in these exchanges"),
        ceiling_times=times_without(share),
        confidence=confidence,
    )
