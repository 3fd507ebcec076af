"""Comparison of all ranks. PURE.

Ranks that differ in hardware or software train at the pace of the slowest at best, and at worst
silently learn other weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.training.preflight.device_facts import DeviceFacts
from slurm_jobs.common.ranges import ranges_text

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Result of comparing all ranks."""

    problems: tuple[str, ...]
    """Problems that prevent the training."""
    warnings: tuple[str, ...]


def compare_ranks(by_rank: Sequence[RankFacts]) -> Comparison:
    """Return the differences between ranks, by rank and node, with the remedy.

    Cards of different compute capability are a problem: each has its own kernels and precision.
    Different cards of one capability, different memory and another number of compute threads
    are warnings.
    """
    names = sorted({name for rank in by_rank for name in rank.versions})
    same_environment = "give all nodes the same environment (the stage's python, setup lines)"
    one_kind = "request one kind of card (resources.gpu, or slurm: {constraint: ..})"
    threads = _difference(
        by_rank, "the number of compute threads", lambda rank: rank.num_compute_threads
    )
    threads = threads and f"{threads}: set num_compute_threads"
    found = [
        *(
            _difference(by_rank, name, lambda rank, name=name: rank.versions.get(name, "missing"))
            for name in names
        ),
        _difference(by_rank, "the stage's config", lambda rank: rank.config),
    ]
    problems = [f"{told}: {same_environment}" for told in found if told]
    cards = _difference(by_rank, "device", _kind)
    is_mixed = len({(rank.device.type, rank.device.capability) for rank in by_rank}) > 1
    precision = _difference(by_rank, "precision", lambda rank: rank.precision)
    problems += [f"{told}: {one_kind}" for told in (cards if is_mixed else None, precision) if told]
    slower = cards and not is_mixed and f"{cards}: all run at the pace of the slowest"
    warnings = [slower or None, _memory_warning(by_rank), threads]
    return Comparison(
        problems=tuple(problems), warnings=tuple(warning for warning in warnings if warning)
    )


def _kind(rank: RankFacts) -> str:
    """Return the card's model without its memory size; all CPUs count as one."""
    if rank.device.capability is None:
        return rank.device.type
    return _MEMORY_IN_NAME.sub("", str(rank.device))


def _memory_warning(by_rank: Sequence[RankFacts]) -> str | None:
    sizes = [rank.device.total_bytes for rank in by_rank]
    known = [size for size in sizes if size is not None]
    if not known or max(known) - min(known) <= _MEMORY_TOLERANCE_SHARE * max(known):
        return None
    told = _difference(
        by_rank, "memory of the card", lambda rank: f"{(rank.device.total_bytes or 0) / 1e9:.1f} GB"
    )
    return f"{told}: the smallest bounds what a microbatch may hold"


def _difference(
    by_rank: Sequence[RankFacts], what: str, value_of: Callable[[RankFacts], object]
) -> str | None:
    """Return `torch is 2.13.0 on ranks 0-3 (node a), 2.12.1 on ranks 4-7 (node b)`, or None."""
    ranks_of: dict[object, list[int]] = {}
    for rank, facts in enumerate(by_rank):
        ranks_of.setdefault(value_of(facts), []).append(rank)
    if len(ranks_of) == 1:
        return None
    parts = []
    for value, ranks in ranks_of.items():
        nodes = ", ".join(dict.fromkeys(by_rank[rank].node_name for rank in ranks))
        plural = "s" if len(ranks) > 1 else ""
        parts.append(f"{value} on rank{plural} {ranges_text(ranks)} ({nodes})")
    return f"ranks are not alike: {what} is {', '.join(parts)}"
