"""Rules on the device's activity in profiled steps. PURE. `findings` describes rules.

They are those of `slurm-jobs profile`, which shows the same steps one by one.
"""

from __future__ import annotations

from slurm_jobs.profiles.findings import LAUNCHES, ON_DEVICES, PAGEABLE, SMALL_COPIES
from slurm_jobs.report import words
from slurm_jobs.report.findings.base import ON_CPUS, abstain, clear, rule
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers


@rule(LAUNCHES)
def kernel_launches(numbers: TrainingNumbers) -> Finding | Check:
    """Find kernels of which half are shorter than a launch, on a device that idles in between."""
    return _judge("kernel-launches", numbers, "what the host does takes longer than the device")


@rule(PAGEABLE)
def pageable_copies(numbers: TrainingNumbers) -> Finding | Check:
    """Find copies from or to memory that is not pinned: 1 % of the steps."""
    return _judge("pageable-copies", numbers, "host and device wait for such copies")


@rule(SMALL_COPIES)
def small_copies(numbers: TrainingNumbers) -> Finding | Check:
    """Find fifty copies a step of which four fifths are short."""
    return _judge("small-copies", numbers, "each costs more to start than to make")


def _judge(name: str, numbers: TrainingNumbers, why: str) -> Finding | Check:
    rule_id = f"{name}:{numbers.stage}"
    if numbers.device == "cpu":
        return clear(rule_id, ON_CPUS)
    if numbers.profiled is None or numbers.profiled.wall_s <= 0:
        return abstain(rule_id, "no steps were profiled on a GPU (`profile: {steps: [20, 40]}`)")
    found = ON_DEVICES[name](numbers.profiled)
    if found is None:
        steps = words.number_of("profiled step", numbers.profiled.num_steps)
        return clear(rule_id, f"not in {steps}")
    return Finding(
        rule_id=rule_id,
        severity="high" if found.share >= 0.20 else "medium",
        title=f"{found.title} ({numbers.stage})",
        text=f"In the steps that were profiled, {why}.",
        evidence=(found.evidence,),
        next_knob=found.next_knob,
        ceiling=found.ceiling,
        confidence="medium: recorded steps are slower than others, small kernels most",
    )
