"""Rule on device memory that is nearly full. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers


@rule("memory-pressure", "more than 0 allocator retries", "DeepSpeed, memory-pressure warning")
def allocator_retries(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find allocator retries. DeepSpeed: any retry means memory pressure."""
    if not numbers.num_allocator_retries:
        return clear("no allocator retries")
    return Finding(
        title="the device's memory is nearly full",
        text="The allocator had to flush its cache and retry, which stalls the device.",
        evidence=(
            (
                f"There were {numbers.num_allocator_retries:,} allocator retries, at a peak of "
                f"{units.quantity(numbers.memory_peak_bytes)}."
            ),
        ),
        next_knob="Use a smaller microbatch, or activation checkpointing.",
        ceiling="not known: retries are not timed separately",
    )
