"""Check that export and evaluation, after the last step, fit in memory. PURE.

Both start when all the training is done; their memory is a lower bound here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.models.parts import is_adapter, without_adapters
from pipeline.training.host_memory import HostMemory
from pipeline.training.preflight.device_facts import DeviceFacts
from pipeline.training.preflight.memory_need import stored_bytes
from pipeline.training.preflight.model_sizes import ModelSizes

_GB = 1e9
_FP32 = 4
"""Bytes of an exported weight."""
_NO_EVALUATION = "disable it (`evaluate: {manifest: null}`)"


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

    Args:
        sizes: Sizes of the model, with its adapters.
        evaluation_itemsize: Bytes of a weight in the evaluation; None without one.
    """
    packed = sum(each.num_weights for each in sizes.parameters if each.is_packed)
    adapted = sum(each.num_weights for each in sizes.parameters if _is_adapted(each.name))
    merged = sum(each.num_weights for each in sizes.parameters if not is_adapter(each.name))
    return EndingNeed(
        export_bytes=stored_bytes(sizes) + _FP32 * (packed + adapted),
        evaluation_bytes=merged * (evaluation_itemsize or 0),
    )


def _is_adapted(name: str) -> bool:
    return name.endswith(".weight") and without_adapters(name) != name


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

    Args:
        need: Needs of the export and of a rank's evaluation.
        card: The rank's device.
        host: Memory of its node.
        exports: True if this is rank 0.
        num_local_ranks: Ranks on the node, which evaluate at once.
        node_name: Name of the node.
    """
    if card.total_bytes is not None and need.evaluation_bytes > card.total_bytes:
        yield (
            "the evaluation after training will hold the whole model on each rank's card, "
            f"{_gb(need.evaluation_bytes)} or more, but {card} has {_gb(card.total_bytes)}: use "
            f"cards with more memory, or {_NO_EVALUATION}"
        )
    limit = f"{host.source} gives {_gb(host.limit_bytes)}: request more memory (resources.mem_gb)"
    together_bytes = num_local_ranks * need.evaluation_bytes
    if together_bytes > host.limit_bytes:
        yield (
            "the evaluation after training will read the whole model on each of the "
            f"{num_local_ranks} ranks on {node_name}, {_gb(together_bytes)} or more together, "
            f"but {limit}, or {_NO_EVALUATION}"
        )
    if exports and need.export_bytes > host.limit_bytes:
        yield (
            f"the export after training will take {_gb(need.export_bytes)} or more of the memory "
            f"of {node_name}, where rank 0 gathers the weights, but {limit}"
        )


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / _GB:.2f} GB"
