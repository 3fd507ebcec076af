"""Rule on tokenising that takes most of the preprocessing. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome

_MOST_OF_THE_WORK, _MIN_WORK_S = 0.5, 60.0


@rule(
    "tokenising",
    "tokenising takes half or more of the preprocessing work, if that is at least 60 s",
)
def slow_tokenising(data: DataNumbers) -> Finding | RuleOutcome:
    """Find tokenising that takes half of the preprocessing time, or more."""
    whole_s = sum(data.work_s.values())
    if not whole_s:
        return abstain("the parts of preprocessing are not timed separately")
    share = data.work_s.get("tokenise", 0.0) / whole_s
    if share < _MOST_OF_THE_WORK or whole_s < _MIN_WORK_S:
        return clear(f"{units.percent(share)} of {units.seconds(whole_s)} of work")
    return Finding(
        title="tokenising is the slow part of preprocessing",
        text="Texts take longer than images.",
        evidence=(
            ", ".join(f"{name} {units.seconds(s)}" for name, s in data.work_s.items() if s >= 0.05),
        ),
        next_knob="Use a fast tokenizer (tokenizer.json next to the processor). Then use more "
        "slices, which run in parallel.",
        ceiling=ceiling(share, "slices without tokenising"),
    )
