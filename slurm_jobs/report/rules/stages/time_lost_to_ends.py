"""Rule on time that is lost because attempts end before their work is done. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from slurm_jobs.base import units
from slurm_jobs.report.attempts.attempt_losses import loss_text
from slurm_jobs.report.rules.base import SHORT_RUN_S, abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.run.attempt_history import AttemptEnding

_LIMIT, _HIGH = 0.10, 0.25
_NAMED = 0.05
"""Share from which a part of the lost time is in the title."""
_SAVE_MORE = (
    "Save more often (checkpoint.every_min), or give the job more time to save (signal_lead_s)."
)
_KNOBS: Mapping[AttemptEnding, str] = {
    "time limit": "Request a longer time limit (resources.timeout_min).",
    "preempted": "Choose a partition without preemption.",
    "out of memory": "Request more memory (resources.mem_gb).",
}
_OTHER_KNOB = "Remove the cause of these ends."


@rule(
    "lost-time",
    "start-ups again, repeated work and requeue waits take 10 % or more of a stage's attempts and "
    "these waits (a quarter: high), if these are at least 300 s",
)
def lost_between_attempts(attempts: StageAttempts) -> Finding | RuleOutcome:
    """Find a stage that loses 10 % of its time when its attempts end; high from a quarter on."""
    lost = attempts.lost
    if lost.whole_s < SHORT_RUN_S:
        return abstain(f"the attempts took {units.seconds(lost.whole_s)} in all, under 300 s")
    if lost.share < _LIMIT:
        return clear(f"{units.percent(lost.share)} of its time was lost when attempts ended")
    largest = lost.parts[0][0]
    named = ", ".join(
        f"{name} {units.percent(seconds / lost.whole_s)}"
        for name, seconds in lost.parts
        if seconds >= _NAMED * lost.whole_s
    )
    endings: Counter[AttemptEnding] = Counter(
        entry.ending
        for entry in attempts.entries
        if entry.ending not in {"completed", "running", "superseded"}
    )
    most: AttemptEnding = endings.most_common(1)[0][0] if endings else "unknown"
    has_steps = any(entry.num_steps is not None for entry in attempts.entries)
    is_unsaved = largest == "repeated work" and has_steps
    knob = _SAVE_MORE if is_unsaved else _KNOBS.get(most, _OTHER_KNOB)
    ended_by = ", ".join(f"{ending} {num:,}" for ending, num in endings.most_common())
    whole = f"{units.seconds(lost.seconds)} of {units.seconds(lost.whole_s)}"
    return Finding(
        severity="high" if lost.share >= _HIGH else "medium",
        title=f"{units.percent(lost.share)} of the time was lost when attempts ended: {named}",
        text="Each attempt that ends early costs another wait and start-up, and the work since its "
        "last save.",
        evidence=(f"{whole} were lost. Attempts ended by: {ended_by}", loss_text(lost)),
        next_knob=f"{knob} `slurm-jobs status --stage {attempts.stage}` shows each cause.",
        ceiling=ceiling(lost.share, "no lost time"),
        ceiling_times=times_without(lost.share),
    )
