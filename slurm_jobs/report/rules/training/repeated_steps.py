"""Rule on steps that were done twice, because an attempt ended after its last checkpoint. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule
from slurm_jobs.report.rules.training.around_the_steps import AROUND_KINDS
from slurm_jobs.report.rules.training.checkpoint_and_evaluation import CHECKPOINT_LIMIT
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers


@rule("repeated-steps", "repeated steps are 5 % of all recorded steps or more")
def repeated_steps(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find steps repeated after a stop: 5 % of all recorded steps."""
    num_repeated = numbers.num_repeated_steps
    if not num_repeated:
        return clear("no step was done twice")
    if numbers.too_few:
        return abstain(numbers.too_few)
    total = numbers.num_steps + num_repeated
    share = num_repeated / total
    if share < 0.05:
        return clear(f"{num_repeated} of {total:,} steps were done twice")
    saving = numbers.phase("checkpoint").share
    knob = (
        "Save more often (checkpoint.every_min or every_steps), or give the job more time to save "
        "before its time limit (signal_lead_s)."
    )
    if saving >= CHECKPOINT_LIMIT:  # then `checkpoint_stall` advises saving less often
        knob = (
            "Give the job more time to save before its time limit (signal_lead_s). Do not save "
            f"more often, because checkpoints already take {units.percent(saving)} of the step "
            "time."
        )
    steps_s = sum(s.seconds for s in numbers.budget if s.kind not in AROUND_KINDS)
    # Repeated steps may be longer or shorter than others.
    share_of_time = min(1.0, numbers.repeated_s / steps_s) if steps_s > 0 else 0.0
    return Finding(
        title=f"{num_repeated:,} steps were done twice",
        text="An attempt ended some steps after its last checkpoint, and the next one repeated "
        "them.",
        evidence=(
            (
                f"They took {units.seconds(numbers.repeated_s)} and are {units.percent(share)} of "
                f"all steps, over {units.number_of('attempt', numbers.num_attempts)}."
            ),
        ),
        next_knob=knob,
        ceiling=ceiling(max(share, share_of_time), "no repeated steps"),
    )
