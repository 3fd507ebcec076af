"""Rules on checkpoints and evaluation, which interrupt the steps. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import (
    SHORT_RUN_S,
    abstain,
    ceiling,
    clear,
    phase_evidence,
    rule,
    times_without,
)
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_TRIGGERS = ("every_min", "every_steps")
"""Keys of the config's `checkpoint` that save a state before the end."""
CHECKPOINT_LIMIT = 0.05
_EVALUATION_LIMIT = 0.10


def _stall(numbers: TrainingNumbers, kind: str, limit: float, knob: str) -> Finding | RuleOutcome:
    if numbers.too_few:
        return abstain(numbers.too_few)
    share = numbers.phase(kind).share
    if share < limit:
        return clear(f"{units.percent(share)} of the step time")
    critical = numbers.critical_shares.get(kind)
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{kind} takes {units.percent(share)} of the training time",
        text=f"The ranks are idle during {kind}.",
        evidence=phase_evidence(numbers, kind),
        next_knob=knob,
        ceiling=ceiling(critical, f"no time in {kind}"),
        ceiling_times=times_without(critical),
    )


@rule(
    "checkpoint",
    f"checkpoint takes {units.percent(CHECKPOINT_LIMIT)} of the step time or more",
)
def checkpoint_stall(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find checkpoints that take 5 % of the step time; a short training may save at its end."""
    if numbers.saves_ahead:
        # The advice depends on how the stage saves now; if that is unknown, it names everything.
        now = numbers.checkpoint
        save = {"async": "Save", "sync": "Set checkpoint.mode: async, or save"}.get(
            now.get("mode", ""), "Set checkpoint.mode: async if it is sync, or save"
        )
        given = [f"checkpoint.{n} (now {now[n]:g})" for n in _TRIGGERS if now.get(n) is not None]
        names = given or [f"checkpoint.{name}" for name in _TRIGGERS]
        first = ", whichever comes first" if len(names) > 1 else ""
        knob = (
            f"{save} less often: raise {' and '.join(names)}{first}. A kill then loses more work."
        )
        return _stall(numbers, "checkpoint", CHECKPOINT_LIMIT, knob)
    if sum(phase.seconds for phase in numbers.phases) * numbers.num_measured < SHORT_RUN_S:
        return clear(
            "all checkpoints were saved at the end; their share is large only in so short a "
            "training"
        )
    knob = (
        "No setting helps, because all checkpoints were saved at an end (of the training, of a "
        "phase, or at a stop), which is always done. In a longer training their share is smaller, "
        "and a faster file system shortens them."
    )
    return _stall(numbers, "checkpoint", CHECKPOINT_LIMIT, knob)


@rule(
    "evaluation",
    f"evaluation takes {units.percent(_EVALUATION_LIMIT)} of the step time or more",
)
def evaluation_stall(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find evaluation that takes 10 % of the step time."""
    knob = (
        "Evaluate less often, or on fewer samples: raise evaluate.every_steps, or lower "
        "evaluate.num_loss_samples and evaluate.num_answers (answers cost most)."
    )
    return _stall(numbers, "evaluation", _EVALUATION_LIMIT, knob)
