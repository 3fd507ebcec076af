"""Rule on waits in the queue. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.rules.base import SHORT_RUN_S, abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome


@rule("queue-wait", "queue wait is half of the time from submit to end or more")
def queue_dominates(timeline: Sequence[TimeShare], note: str) -> Finding | RuleOutcome:
    """Find a queue that takes more than half of the time from submit to end."""
    if note:
        return abstain(note)
    whole_s = sum(part.seconds for part in timeline)
    if whole_s < SHORT_RUN_S:
        return abstain(f"{units.seconds(whole_s)} from submit to end, under 300 s")
    queue = [part for part in timeline if part.kind == "queue"]
    share = sum(part.share for part in queue)
    if share < 0.5:
        return clear(f"{units.percent(share)} of the time from submit to end")
    waited = units.seconds(sum(part.seconds for part in queue))
    return Finding(
        title=f"The queue took {units.percent(share)} of the time from submit to end",
        text="No stage ran while these jobs waited for resources.",
        evidence=(f"For {waited} jobs waited and none ran.",),
        next_knob="Lower timeout_min, because the backfill scheduler fits short jobs into gaps. Or "
        "request fewer nodes, or another partition.",
        ceiling="not known: nothing but waiting was recorded"
        if share == 1
        else f"no such waits: the run is {units.times(1 / (1 - share))} as fast; waits while "
        "another stage runs are not included",
    )
