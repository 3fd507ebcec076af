"""Log sentence about a model's distribution; `StrategyFacts` are for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pipeline.train.strategies.fsdp_units import units_within
from pipeline.train.strategies.strategy import ParallelModel, StrategyFacts
from pipeline.train.strategy_checks.expected_facts import plain_class

_SHORT = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
"""Names in `precision`."""


def describe_parallel_model(strategy: str, parallel: ParallelModel, facts: StrategyFacts) -> str:
    """Describe strategy, ranks, units, precision, and the location of parameters."""
    kind = f" ({facts.distributed_type})" if facts.distributed_type else ""
    parts = [f"{strategy}{kind}{_describe_mesh(facts.mesh)}"]
    if facts.num_units:
        classes = Counter(plain_class(unit) for unit in units_within(parallel.model))
        listed = ", ".join(f"{number} {name}" for name, number in classes.items())
        parts.append(f"{_counted('unit', facts.num_units)} gathered one at a time ({listed})")
    computes = " and ".join(map(_short, facts.compute_dtypes))
    reduces = " and ".join(map(_short, facts.reduce_dtypes))
    reduced = f", gradients are reduced in {reduces}" if reduces else ""
    parts.append(f"forward and backward passes compute in {computes}{reduced}")
    parts.append(
        f"parameters are stored as {_list_counts(facts.dtypes)} on {_list_counts(facts.devices)}"
    )
    if facts.num_recomputed:
        parts.append(f"{facts.num_recomputed} layers are recomputed in the backward pass")
    return "; ".join(parts)


def _describe_mesh(mesh: Mapping[str, int]) -> str:
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


def _list_counts(counts: Mapping[str, int]) -> str:
    """Return the names, with the number of parameters if there are several."""
    if len(counts) == 1:
        return _short(next(iter(counts)))
    return " and ".join(f"{_short(name)} ({number:,})" for name, number in counts.items())


def _short(name: str) -> str:
    return _SHORT.get(name, name.removeprefix("torch."))


def _counted(thing: str, number: int) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
