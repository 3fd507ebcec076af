"""Check that a training fits in the memory of cards and nodes, and remedies if not."""

from __future__ import annotations

from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.memory.host_memory import HostMemory
from pipeline.train.memory.memory_need import MemoryNeed, describe_need, gb
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig

_OTHERS_SHARE = 0.1
"""Share of a card: a CUDA context and a desktop take less."""


def judge_card(
    need: MemoryNeed, facts: DeviceFacts, remedy: str, *, fewer_rows: str = ""
) -> str | None:
    """Return a warning about the memory of a GPU; `fewer_rows` helps against activations only.

    Raises:
        StageConfigError: the training does not fit.
    """
    total_bytes, free_bytes = facts.total_bytes, facts.free_bytes
    assert total_bytes is not None
    assert free_bytes is not None
    described, limit = describe_need(need), f"but {facts} has {gb(total_bytes)}"
    if need.least_bytes > total_bytes:
        message = (
            f"each rank must hold at least {gb(need.least_bytes)} ({described}), {limit}: {remedy}"
        )
        raise StageConfigError(message)
    if need.expected_bytes > total_bytes:
        return (
            f"each rank will hold {gb(need.expected_bytes)} or more ({described}, compute weights "
            f"{gb(need.computing_bytes)}, activations {gb(need.activations_bytes)} or more), "
            f"{limit}: {fewer_rows}{remedy}"
        )
    if total_bytes - free_bytes > _OTHERS_SHARE * total_bytes:
        return (
            f"other processes use {gb(total_bytes - free_bytes)} of {facts}, and "
            f"{gb(free_bytes)} are free: see `nvidia-smi` there"
        )
    return None


def judge_node(
    *, least_bytes: int, expected_bytes: int, host: HostMemory, node_name: str, remedy: str
) -> str | None:
    """Return a warning about the memory of a node.

    The ranks there together need `least_bytes`, and probably `expected_bytes`.

    Raises:
        StageConfigError: the training does not fit.
    """
    who = f"the ranks on {node_name} must hold"
    more = f"request more memory (resources.mem_gb), or {remedy}"
    limit = f"{host.source} gives {gb(host.limit_bytes)}"
    if least_bytes > host.limit_bytes:
        message = f"{who} at least {gb(least_bytes)}, but {limit}: {more}"
        if host.source == "SLURM_MEM_PER_CPU":  # a site's default, which may not be enforced
            return message
        raise StageConfigError(message)
    if expected_bytes > host.limit_bytes:
        return f"{who} {gb(expected_bytes)} or more, but {limit}: {more}"
    if expected_bytes > host.available_bytes:
        return (
            f"{who} {gb(expected_bytes)} or more, but {gb(host.available_bytes)} are available "
            f"there now: {more}"
        )
    return None


def remedies(config: TrainConfig, need: MemoryNeed, *, num_ranks: int, optimizer_kind: str) -> str:
    """Return settings that reduce memory and are not in use yet, the most direct first."""
    sharding, is_fsdp2 = config.sharding, config.strategy == "fsdp2"
    accumulates = need.accumulated_bytes > need.gradients_bytes
    several = "" if num_ranks > 1 else " with several ranks"
    ways = {
        "disable held-out evaluations, which gather all weights (`evaluate: {every_steps: "
        "null}`)": need.gathered_bytes > 0,
        "set `sharding: {accumulate: sharded}`": accumulates and is_fsdp2,
        "train adapters instead of weights (`adapters: {rank: 16}`)": config.adapters is None,
        "quantise frozen layers to 4 bits under adapters (`quantize: {kind: nf4}`)": (
            config.quantize is None
        ),
        f"set `strategy: fsdp2`{several}": not is_fsdp2,
        "set `sharding: {within: all}`": is_fsdp2 and sharding.within == "node",
        "use more ranks under fsdp2 (resources.nodes, tasks_per_node)": True,
        "set `optimizer: {kind: adamw_8bit}`": optimizer_kind == "adamw",
        "set `sharding: {cpu_offload: true}` under fsdp2": (
            config.device == "cuda" and not sharding.cpu_offload
        ),
    }
    return "; or ".join(way for way, helps in ways.items() if helps)
