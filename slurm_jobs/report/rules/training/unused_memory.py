"""Rules on device memory that a training leaves unused. PURE.

They apply if twice the peak would fit into nine tenths of the GPU: doubling the batch can at most
double the peak, because weights and optimizer state do not grow.
"""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import ON_CPUS, abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_ROOM = 0.45
"""Half of the 90 % that `num_microbatches: auto` fills."""
_RECOMPUTED = 0.25
"""Share of a step with activation checkpointing: one more forward pass in addition to a forward
pass and a backward pass of twice its work (Chen et al. 2016)."""
_ROOM_RULE = "twice the peak is within 90 % of the card's memory"


@rule("small-batch", f"{_ROOM_RULE}, and num_microbatches is 1")
def small_batch(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find a single microbatch per step that could be twice as large."""
    if numbers.num_microbatches > 1:
        return clear("a step has several microbatches: see `accumulation`")
    return _no_room(numbers) or Finding(
        severity="note",
        title="a batch of twice the size would fit",
        text="A small batch does not fill the GPU.",
        evidence=(_memory_text(numbers),),
        next_knob="Raise global_batch_size if the training still converges (adjust the learning "
        "rate), or use fewer GPUs for the same batch.",
        confidence="medium: the memory of a larger batch is an upper bound, not a measurement",
        ceiling="not known: depends on how busy a batch of this size keeps the GPU",
    )


@rule("accumulation", f"{_ROOM_RULE}, and num_microbatches is 2 or more")
def accumulation(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find more microbatches than the memory requires."""
    if numbers.num_microbatches <= 1 and not numbers.too_few:
        return clear("each step is one microbatch")
    return _no_room(numbers) or Finding(
        title="memory allows half as many microbatches per step",
        text="Each microbatch has its own kernel launches, and the GPU has room for larger ones. "
        "The number of microbatches does not change what the model learns.",
        evidence=(f"{numbers.num_microbatches} microbatches per step; {_memory_text(numbers)}",),
        next_knob="Halve num_microbatches, or set it to auto, which finds the fewest that fit. If "
        "it is auto already, raise memory_share.",
        confidence="medium: the memory of a larger microbatch is an upper bound, not a measurement",
        ceiling="not known: depends on how busy a microbatch of this size keeps the GPU",
    )


@rule("activation-checkpointing", f"activation_checkpointing is on, and {_ROOM_RULE}")
def needless_checkpointing(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find activation checkpointing that memory does not require."""
    if not numbers.activation_checkpointing:
        return clear("it is off: activations are stored, not recomputed")
    return _no_room(numbers) or Finding(
        severity="note",
        title="activations are recomputed although memory is free",
        text="Activation checkpointing saves memory and costs time, but here memory is free.",
        evidence=(_memory_text(numbers),),
        next_knob="Set activation_checkpointing: false. The preflight reports in the job's first "
        "seconds whether it fits, and num_microbatches: auto finds what fits.",
        confidence="low: the memory of stored activations is not known before it is tried",
        ceiling=ceiling(_RECOMPUTED, "no second forward pass"),
        ceiling_times=times_without(_RECOMPUTED),
    )


def _no_room(numbers: TrainingNumbers) -> RuleOutcome | None:
    """Return the common answer if there is no memory to spare, or it is unknown."""
    peak, capacity = numbers.memory_peak_bytes, numbers.memory_capacity_bytes
    if numbers.device == "cpu":
        return clear(ON_CPUS)
    if numbers.too_few:
        return abstain(numbers.too_few)
    if capacity is None:
        return abstain("no reading of a node shows how much memory its GPUs have")
    if peak.value is None:
        return abstain(peak.missing)
    return None if peak.value <= _ROOM * capacity else clear(_memory_text(numbers))


def _memory_text(numbers: TrainingNumbers) -> str:
    peak, capacity = numbers.memory_peak_bytes, numbers.memory_capacity_bytes or 0.0
    share = units.percent((peak.value or 0.0) / capacity)
    return f"peak {units.quantity(peak)} of {units.num_bytes(capacity)}, {share} of the card"
