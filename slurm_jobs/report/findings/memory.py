"""Rules on unused device memory. PURE. `findings` describes rules.

They apply if twice the peak would fit into nine tenths of the GPU: doubling the batch can at most
double the peak, because weights and optimizer state do not grow with it.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import ON_CPUS, abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers

_ROOM = 0.45
"""Half of the 90 % that `num_microbatches: auto` fills."""
_RECOMPUTED = 0.25
"""Share of a step with activation checkpointing: one more forward pass in addition to a forward
pass and a backward pass of twice its work (Chen et al. 2016)."""
_ROOM_RULE = "twice the peak is within 90 % of the card's memory"


@rule(f"{_ROOM_RULE}, and num_microbatches is 1")
def small_batch(numbers: TrainingNumbers) -> Finding | Check:
    """Find a microbatch that could be doubled, without accumulation."""
    rule_id = f"small-batch:{numbers.stage}"
    if numbers.num_microbatches > 1:
        return clear(rule_id, "the global batch is cut into microbatches: see `accumulation`")
    if answer := _no_room(numbers, rule_id):
        return answer
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"a batch of twice the size would fit ({numbers.stage})",
        text="Small batches leave a GPU less to do at once than it could.",
        evidence=(_use_text(numbers),),
        next_knob="a larger global_batch_size, if the training bears it (the learning rate goes "
        "with it); or fewer GPUs for the same batch",
        confidence="medium: what a larger batch holds is a bound, not a measurement",
        ceiling="not known: depends on how busy a batch of this size keeps the GPU",
    )


@rule(f"{_ROOM_RULE}, and num_microbatches is 2 or more")
def accumulation(numbers: TrainingNumbers) -> Finding | Check:
    """Find more microbatches than memory requires."""
    rule_id = f"accumulation:{numbers.stage}"
    if numbers.num_microbatches <= 1 and not numbers.too_few:
        return clear(rule_id, "each step is one microbatch")
    if answer := _no_room(numbers, rule_id):
        return answer
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"half as many microbatches a step would fit ({numbers.stage})",
        text="Each microbatch pays for its own launches, and is smaller than the GPU could take; "
        "what is learned stays the same with fewer.",
        evidence=(f"{numbers.num_microbatches} microbatches a step; {_use_text(numbers)}",),
        next_knob="num_microbatches: auto finds the fewest that fit (where it is auto already, "
        "raise memory_share); or halve it",
        confidence="medium: what a larger microbatch holds is a bound, not a measurement",
        ceiling="not known: depends on how busy a microbatch of this size keeps the GPU",
    )


@rule(f"activation_checkpointing is on, and {_ROOM_RULE}")
def needless_checkpointing(numbers: TrainingNumbers) -> Finding | Check:
    """Find activation checkpointing that memory does not require."""
    rule_id = f"activation-checkpointing:{numbers.stage}"
    if not numbers.activation_checkpointing:
        return clear(rule_id, "activations are kept, not computed again")
    if answer := _no_room(numbers, rule_id):
        return answer
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"activations are computed again with memory to spare ({numbers.stage})",
        text="Activation checkpointing gives time for memory; here there is memory.",
        evidence=(_use_text(numbers),),
        next_knob="activation_checkpointing: false; the preflight says in the job's first seconds "
        "whether weights and state leave room, and num_microbatches: auto finds what fits",
        confidence="low: how much memory activations take is not known before they are kept",
        ceiling=ceiling(_RECOMPUTED, "no second forward pass"),
        ceiling_times=times_without(_RECOMPUTED),
    )


def _no_room(numbers: TrainingNumbers, rule_id: str) -> Check | None:
    """Return the common answer if there is no memory to spare, or it is unknown."""
    if numbers.device == "cpu":
        return clear(rule_id, ON_CPUS)
    if reason := _cannot_tell(numbers):
        return abstain(rule_id, reason)
    return None if _has_room(numbers) else clear(rule_id, _use_text(numbers))


def _cannot_tell(numbers: TrainingNumbers) -> str:
    if numbers.too_few:
        return numbers.too_few
    if numbers.memory_capacity_bytes is None:
        return "no reading of a node shows how much memory its GPUs have"
    return numbers.memory_peak_bytes.missing


def _has_room(numbers: TrainingNumbers) -> bool:
    peak, capacity = numbers.memory_peak_bytes.value, numbers.memory_capacity_bytes
    return peak is not None and capacity is not None and peak <= _ROOM * capacity


def _use_text(numbers: TrainingNumbers) -> str:
    assert numbers.memory_capacity_bytes is not None
    share = (numbers.memory_peak_bytes.value or 0.0) / numbers.memory_capacity_bytes
    return (
        f"peak {words.quantity(numbers.memory_peak_bytes)} of "
        f"{words.num_bytes(numbers.memory_capacity_bytes)}, {words.percent(share)} of the card"
    )
