"""Rules on the device's activity in profiled steps. PURE.

`slurm-jobs profile` shows the same steps one by one.
"""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.profiles.profile_findings import LAUNCHES, ON_DEVICES, PAGEABLE, SMALL_COPIES
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers


@rule("kernel-launches", LAUNCHES, gpus_only=True)
def kernel_launches(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find kernels of which half are shorter than a launch, on a device that idles in between."""
    return _profiled("kernel-launches", numbers, "the host takes longer than the device")


@rule("pageable-copies", PAGEABLE, gpus_only=True)
def pageable_copies(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find copies from or to memory that is not pinned: 1 % of the steps."""
    return _profiled("pageable-copies", numbers, "host and device wait for these copies")


@rule("small-copies", SMALL_COPIES, gpus_only=True)
def small_copies(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find fifty copies a step of which four fifths are short."""
    return _profiled("small-copies", numbers, "starting a copy takes longer than the copy")


def _profiled(name: str, numbers: TrainingNumbers, why: str) -> Finding | RuleOutcome:
    if numbers.profiled is None or numbers.profiled.wall_s <= 0:
        return abstain("no steps were profiled on a GPU (`profile: {steps: [20, 40]}`)")
    cause = ON_DEVICES[name](numbers.profiled)
    if cause is None:
        return clear(f"not in {units.number_of('profiled step', numbers.profiled.num_steps)}")
    return Finding(
        severity="high" if cause.share >= 0.20 else "medium",
        title=cause.title,
        text=f"In the steps that were profiled, {why}.",
        evidence=(cause.evidence,),
        next_knob=cause.next_knob,
        ceiling=cause.ceiling,
        confidence="medium: profiling slows a step down, small kernels most",
    )
