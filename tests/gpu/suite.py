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
    is_alone: bool = False
    """Whether no other case may run meanwhile, because it measures the device or fills it."""


def _case(name: str, place: str, limit_s: float) -> Case:
    return Case(name=name, function=f"tests.gpu.{place}", limit_s=limit_s)


def _alone(name: str, place: str, limit_s: float) -> Case:
    return Case(name=name, function=f"tests.gpu.{place}", limit_s=limit_s, is_alone=True)


CASES: Sequence[Case] = (
    _alone("facts", "facts:versions_and_device", 40),
    _alone("attention kernels", "facts:attention_kernels", 40),
    _case("parity of models", "parity:models", 120),
    _case("train, kill, resume", "loop:resume", 90),
    _case("checkpoints, evaluation, export", "loop:checkpoint_modes", 90),
    _case("varlen kernel", "varlen:kernel", 60),
    _case("varlen in training", "varlen:training", 90),
    _case("parity of packed rows", "parity:packed_rows", 60),
    _case("4 bits", "parity:four_bits", 60),
    _case("synchronisations", "loop:synchronisations", 60),
    _case("copies during kernels", "races:copies", 50),
    _case("host and device", "host:everything", 50),
    _case("fsdp2 on one rank", "sharded:one_rank", 60),
    _case("fsdp2 as rank 0 of 4", "sharded:rank_of_four", 60),
    _case("fp16", "halves:overflow", 75),
    _alone("memory", "memory:predicted_and_measured", 75),
    _alone("memory of looks", "memory:looks", 60),
    _alone("out of memory", "memory:forced_out_of_memory", 30),
    _alone("device times", "speed:device_times", 40),
    _alone("speed: shuffled", "speed:shuffled", 90),
    _alone("speed: packed", "speed:packed", 75),
    _alone("speed: packed, compiled", "speed:packed_compiled", 120),
    _alone("speed: packed, dense mask", "speed:packed_dense", 75),
    _alone("speed: grouped", "speed:grouped", 90),
    _alone("pictures by length", "varlen:pictures", 45),
    _alone("hangs and failures", "hangs:both", 90),
)
