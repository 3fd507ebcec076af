"""The cases, in the order of what they can show first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: a function that takes a `Work`."""

    name: str
    function: str
    """`module:function`; imported in the case's own process."""
    limit_s: float
    """After which its process is killed."""


def _case(name: str, place: str, limit_s: float) -> Case:
    return Case(name=name, function=f"tests.gpu.{place}", limit_s=limit_s)


CASES: Sequence[Case] = (
    _case("facts", "facts:versions_and_device", 40),
    _case("attention kernels", "facts:attention_kernels", 40),
    _case("parity of models", "parity:models", 90),
    _case("parity of packed rows", "parity:packed_rows", 45),
    _case("varlen kernel", "varlen:kernel", 40),
    _case("varlen in training", "varlen:training", 60),
    _case("pictures by length", "varlen:pictures", 45),
    _case("4 bits", "parity:four_bits", 40),
    _case("train, kill, resume", "loop:resume", 75),
    _case("checkpoints, evaluation, export", "loop:checkpoint_modes", 60),
    _case("synchronisations", "loop:synchronisations", 40),
    _case("copies during kernels", "races:copies", 30),
    _case("fsdp2 on one rank", "sharded:one_rank", 45),
    _case("fsdp2 as rank 0 of 4", "sharded:rank_of_four", 45),
    _case("fp16", "halves:overflow", 30),
    _case("memory", "memory:predicted_and_measured", 60),
    _case("out of memory", "memory:forced_out_of_memory", 30),
    _case("device times", "speed:device_times", 40),
    _case("speed: shuffled", "speed:shuffled", 75),
    _case("speed: grouped", "speed:grouped", 60),
    _case("speed: packed", "speed:packed", 60),
    _case("speed: packed, dense mask", "speed:packed_dense", 60),
    _case("speed: packed, compiled", "speed:packed_compiled", 90),
)
