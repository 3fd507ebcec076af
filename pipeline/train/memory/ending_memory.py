"""Check that export and evaluation, after the last step, fit in memory.

Both start when all the training is done; their memory is a lower bound here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.models.finetuning.parameter_names import is_adapter, without_adapters
from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.memory.host_memory import HostMemory
from pipeline.train.memory.memory_need import FP32_BYTES, gb
from pipeline.train.memory.tensor_sizes import ModelSizes
from slurm_jobs.formats.configs.train import NO_EVALUATION

_NO_EVALUATION = f"disable it ({NO_EVALUATION})"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndingNeed:
    """Needs in bytes."""

    export_bytes: int
    """In the memory of rank 0's node."""
    evaluation_bytes: int
    """For each rank, on its device and before that in its node's memory; 0 without evaluation."""


def ending_need(sizes: ModelSizes, *, evaluation_itemsize: int | None) -> EndingNeed:
    """Return the memory of export and evaluation.

    The export holds the gathered weights, with 4-bit ones unpacked, and another copy of those
    that adapters are merged into.

    `evaluation_itemsize` is that of its weights; None without an evaluation.
    """
    packed = sum(e.num_weights for e in sizes.parameters if e.is_packed)
    merged = sum(e.num_weights for e in sizes.parameters if not is_adapter(e.name))
    adapted = sum(
        each.num_weights
        for each in sizes.parameters
        if each.name.endswith(".weight") and without_adapters(each.name) != each.name
    )
    return EndingNeed(
        export_bytes=sizes.stored_bytes + FP32_BYTES * (packed + adapted),
        evaluation_bytes=merged * (evaluation_itemsize or 0),
    )


def judge_ending(
    need: EndingNeed,
    *,
    card: DeviceFacts,
    host: HostMemory,
    exports: bool,
    num_local_ranks: int,
    node_name: str,
) -> Iterator[str]:
    """Yield what will not fit when the training is done, each with the remedy.

    Rank 0 `exports`. All `num_local_ranks` of the node evaluate at once.
    """
    if card.total_bytes is not None and need.evaluation_bytes > card.total_bytes:
        yield (
            "the evaluation after training will hold the whole model on each rank's card, "
            f"{gb(need.evaluation_bytes)} or more, but {card} has {gb(card.total_bytes)}: use "
            f"cards with more memory, or {_NO_EVALUATION}"
        )
    limit = f"{host.source} gives {gb(host.limit_bytes)}: request more memory (resources.mem_gb)"
    together_bytes = num_local_ranks * need.evaluation_bytes
    if together_bytes > host.limit_bytes:
        yield (
            "the evaluation after training will read the whole model on each of the "
            f"{num_local_ranks} ranks on {node_name}, {gb(together_bytes)} or more together, "
            f"but {limit}, or {_NO_EVALUATION}"
        )
    if exports and need.export_bytes > host.limit_bytes:
        yield (
            f"the export after training will take {gb(need.export_bytes)} or more of the memory "
            f"of {node_name}, where rank 0 gathers the weights, but {limit}"
        )
