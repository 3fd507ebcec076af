"""Log sentence about a model's distribution; `StrategyFacts` are for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import nn

from pipeline.training.strategies.base import Spread, StrategyFacts
from pipeline.training.strategies.fsdp_groups import units_within

_SHORT = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
"""Names in `precision`."""


def describe_spread(strategy: str, spread: Spread, facts: StrategyFacts) -> str:
    """Describe strategy, ranks, units, precision, and the location of parameters.

    Args:
        strategy: Name in the config.
        spread: The trained model.
        facts: Its facts.
    """
    kind = f" ({facts.distributed_type})" if facts.distributed_type else ""
    said = [
        f"{strategy}{kind}{_parts(facts.mesh)}",
        *_units(spread.model, facts.num_units),
        _passes(facts),
        f"parameters are stored as {_listed(facts.dtypes)} on {_listed(facts.devices)}",
    ]
    if facts.num_recomputed:
        said.append(f"{facts.num_recomputed} layers are recomputed in the backward pass")
    return "; ".join(said)


def _parts(mesh: Mapping[str, int]) -> str:
    """Describe which rank has which part; without a mesh there is one rank."""
    if not mesh:
        return ": one rank has the whole model"
    shard, groups = mesh.get("shard"), mesh.get("replicate", 1)
    if shard is None:
        return f" over {_counted('rank', groups)}: each has the whole model, gradients are averaged"
    sharded = "parameters, gradients and optimizer are sharded over"
    if groups == 1:
        return f" over {_counted('rank', shard)}: {sharded} all of them"
    each = f"{sharded} {shard} of them, gradients are averaged over {groups} such groups"
    return f" over {shard * groups} ranks: {each}"


def _units(model: nn.Module, num_units: int) -> list[str]:
    """Describe the classes of the parts that are gathered one at a time; empty without sharding."""
    if not num_units:
        return []
    classes = Counter(type(unit).__name__.removeprefix("FSDP") for unit in units_within(model))
    listed = ", ".join(f"{number} {name}" for name, number in classes.items())
    return [f"{_counted('unit', num_units)} gathered one at a time ({listed})"]


def _passes(facts: StrategyFacts) -> str:
    said = f"forward and backward passes compute in {_names(facts.compute_dtypes)}"
    if facts.reduce_dtypes:
        said += f", gradients are reduced in {_names(facts.reduce_dtypes)}"
    return said


def _names(dtypes: tuple[str, ...]) -> str:
    return " and ".join(_short(dtype) for dtype in dtypes)


def _listed(counts: Mapping[str, int]) -> str:
    """Return `fp32`; for several `fp32 (12) and uint8 (34)`, by the number of parameters."""
    if len(counts) == 1:
        return _short(next(iter(counts)))
    return " and ".join(f"{_short(name)} ({number:,})" for name, number in counts.items())


def _short(name: str) -> str:
    return _SHORT.get(name, name.removeprefix("torch."))


def _counted(thing: str, number: int) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
