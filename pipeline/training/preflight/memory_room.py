"""Check that a training fits in memory, and remedies if not. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.training.host_memory import HostMemory
from pipeline.training.preflight.device_facts import DeviceFacts
from pipeline.training.preflight.memory_need import MemoryNeed
from slurm_jobs.common.stage_config.train import TrainConfig

_GB = 1e9
_LEAST_IN_GB = 1e8
_OTHERS_SHARE = 0.1
"""Share of a card: a CUDA context and a desktop take less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Judgement of one kind of memory."""

    problem: str | None = None
    """Reason why training cannot run."""
    warning: str | None = None
    """Reason why it may run out of memory."""


def judge_card(
    need: MemoryNeed, facts: DeviceFacts, remedy: str, *, fewer_rows: str = ""
) -> Verdict:
    """Judge the memory of a GPU; `fewer_rows` helps against activations only."""
    assert facts.total_bytes is not None
    assert facts.free_bytes is not None
    if need.least_bytes > facts.total_bytes:
        return Verdict(
            problem=f"{_least(need)}, but {facts} has {_gb(facts.total_bytes)}: {remedy}"
        )
    if need.expected_bytes > facts.total_bytes:
        return Verdict(
            warning=f"{_expected(need)}, but {facts} has {_gb(facts.total_bytes)}: "
            f"{fewer_rows}{remedy}"
        )
    taken_bytes = facts.total_bytes - facts.free_bytes
    if taken_bytes > _OTHERS_SHARE * facts.total_bytes:
        return Verdict(
            warning=f"other processes use {_gb(taken_bytes)} of {facts}, and "
            f"{_gb(facts.free_bytes)} are free: see `nvidia-smi` there"
        )
    return Verdict()


def judge_node(
    *, least_bytes: int, expected_bytes: int, host: HostMemory, node_name: str, remedy: str
) -> Verdict:
    """Judge the memory of a node.

    Args:
        least_bytes: Required memory of the ranks there together.
        expected_bytes: Expected memory, a higher estimate.
        host: Available memory.
        node_name: Name of the node.
        remedy: Advice.
    """
    who = f"the ranks on {node_name} must hold"
    more = f"request more memory (resources.mem_gb), or {remedy}"
    limit = f"{host.source} gives {_gb(host.limit_bytes)}"
    if least_bytes > host.limit_bytes:
        told = f"{who} at least {_gb(least_bytes)}, but {limit}: {more}"
        # A site's default, which may not be enforced.
        is_default = host.source == "SLURM_MEM_PER_CPU"
        return Verdict(warning=told) if is_default else Verdict(problem=told)
    if expected_bytes > host.limit_bytes:
        return Verdict(warning=f"{who} {_gb(expected_bytes)} or more, but {limit}: {more}")
    if expected_bytes > host.available_bytes:
        return Verdict(
            warning=f"{who} {_gb(expected_bytes)} or more, but {_gb(host.available_bytes)} are "
            f"available there now: {more}"
        )
    return Verdict()


def remedies(config: TrainConfig, need: MemoryNeed, *, num_ranks: int, optimizer_kind: str) -> str:
    """Return settings that reduce memory and are not in use yet, the most direct first."""
    return "; or ".join(_remedies(config, need, num_ranks, optimizer_kind))


def _remedies(
    config: TrainConfig, need: MemoryNeed, num_ranks: int, optimizer_kind: str
) -> Iterator[str]:
    sharding, is_fsdp2 = config.sharding, config.strategy == "fsdp2"
    if need.gathered_bytes:
        yield (
            "disable held-out evaluations, which gather all weights (`evaluate: "
            "{every_steps: null}`)"
        )
    if need.accumulated_bytes > need.gradients_bytes and is_fsdp2:
        yield "set `sharding: {accumulate: sharded}`"
    if config.adapters is None:
        yield "train adapters instead of weights (`adapters: {rank: 16}`)"
    if config.quantize is None:
        yield "quantise frozen layers to 4 bits under adapters (`quantize: {kind: nf4}`)"
    if not is_fsdp2:
        yield "set `strategy: fsdp2`" + ("" if num_ranks > 1 else " with several ranks")
    elif sharding.within == "node":
        yield "set `sharding: {within: all}`"
    yield "use more ranks under fsdp2 (resources.nodes, tasks_per_node)"
    if optimizer_kind == "adamw":
        yield "set `optimizer: {kind: adamw_8bit}`"
    if config.device == "cuda" and not sharding.cpu_offload:
        yield "set `sharding: {cpu_offload: true}` under fsdp2"


def describe_need(need: MemoryNeed) -> str:
    """Describe a rank's memory: `weights 1.2 GB, gradients ..`."""
    parts = {
        "weights": need.weights_bytes + need.buffers_bytes,
        "gradients": max(need.gradients_bytes, need.accumulated_bytes),
        "optimizer": need.optimizer_bytes,
    }
    if need.gathered_bytes:
        parts["all weights gathered for a held-out evaluation"] = need.gathered_bytes
    return ", ".join(f"{name} {_gb(num_bytes)}" for name, num_bytes in parts.items())


def _least(need: MemoryNeed) -> str:
    return f"each rank must hold at least {_gb(need.least_bytes)} ({describe_need(need)})"


def _expected(need: MemoryNeed) -> str:
    return (
        f"each rank will hold {_gb(need.expected_bytes)} or more ({describe_need(need)}, compute "
        f"weights {_gb(need.computing_bytes)}, activations {_gb(need.activations_bytes)} or more)"
    )


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / _GB:.2f} GB" if num_bytes >= _LEAST_IN_GB else f"{num_bytes / 1e6:.2f} MB"
