"""Comparison of all ranks of a training.

Ranks that differ in hardware or software train at the pace of the slowest at best, and at worst
silently learn other weights.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.preflight.shared_gpus import shared_gpu_problems
from slurm_jobs.base.index_ranges import ranges_text

_MEMORY_TOLERANCE_SHARE = 0.02
"""Cards of one model report memory that differs by ECC and retired pages."""
_MEMORY_IN_NAME = re.compile(r"[- ]\d+ ?GB\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """Facts that must be equal on all ranks."""

    node_name: str
    device: DeviceFacts
    versions: Mapping[str, str]
    """Versions of libraries, by name."""
    precision: str
    num_compute_threads: int
    config: str
    """Fingerprint of the stage's config."""


def compare_ranks(by_rank: Sequence[RankFacts]) -> tuple[list[str], list[str]]:
    """Return what prevents training together, and differences that only need a warning.

    Ranks that share a GPU are a problem, and cards of different compute capability, because each
    has its own kernels and precision.
    Different cards of one capability, different memory and another number of compute threads
    are warnings.
    """
    devices = [rank.device for rank in by_rank]
    cards = [_card_model(device) for device in devices]
    are_mixed = len({(device.type, device.capability) for device in devices}) > 1
    sizes = [device.total_bytes or 0 for device in devices]
    are_uneven = max(sizes) - min(filter(None, sizes), default=0) > (
        _MEMORY_TOLERANCE_SHARE * max(sizes)
    )
    names = sorted({name for rank in by_rank for name in rank.versions})
    environment = "give all nodes the same environment (the stage's python, setup lines)"
    one_kind = "request one kind of card (resources.gpu, or slurm: {constraint: ..})"
    problems = []
    for name in names:
        versions = [rank.versions.get(name, "missing") for rank in by_rank]
        problems.append((name, versions, environment))
    problems.append(("the stage's config", [rank.config for rank in by_rank], environment))
    warnings = []
    if are_mixed:
        problems.append(("device", cards, one_kind))
    else:
        warnings.append(("device", cards, "all run at the pace of the slowest"))
    problems.append(("precision", [rank.precision for rank in by_rank], one_kind))
    if are_uneven:
        memory = [f"{size / 1e9:.1f} GB" for size in sizes]
        consequence = "the smallest bounds what a microbatch may hold"
        warnings.append(("memory of the card", memory, consequence))
    num_threads = [str(rank.num_compute_threads) for rank in by_rank]
    warnings.append(("the number of compute threads", num_threads, "set num_compute_threads"))
    nodes = [rank.node_name for rank in by_rank]
    all_problems = [*shared_gpu_problems(nodes, devices), *_differences(nodes, problems)]
    return all_problems, list(_differences(nodes, warnings))


def _card_model(device: DeviceFacts) -> str:
    """Return the card's model without its memory size; all CPUs count as one."""
    return _MEMORY_IN_NAME.sub("", str(device)) if device.capability else device.type


def _differences(
    nodes: Sequence[str], rows: Sequence[tuple[str, Sequence[str], str]]
) -> Iterator[str]:
    """Yield `torch is 2.13.0 on ranks 0-3 (node a), 2.12.1 on ranks 4-7 (node b): <what to do>`.

    `rows` have what is compared, its value on each rank, and the consequence of a difference.
    """
    for what, values, consequence in rows:
        ranks_of = defaultdict[str, list[int]](list)
        for rank, value in enumerate(values):
            ranks_of[value].append(rank)
        if len(ranks_of) > 1:
            parts = ", ".join(f"{v} on {name_ranks(ranks, nodes)}" for v, ranks in ranks_of.items())
            yield f"ranks are not alike: {what} is {parts}: {consequence}"


def name_ranks(ranks: Sequence[int], nodes: Sequence[str], form: str = "{} ({})") -> str:
    """Return `ranks 0-3 (node a)`."""
    numbers = f"rank{'s' if len(ranks) > 1 else ''} {ranges_text(ranks)}"
    return form.format(numbers, ", ".join(dict.fromkeys(nodes[rank] for rank in ranks)))
