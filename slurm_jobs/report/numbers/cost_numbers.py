"""Cost of a run in GPU-hours, CPU-hours and money. PURE.

Hours are those allocated, as sites charge them. The cluster profile has the prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.report.numbers.trainings.training_time import AGAIN
from slurm_jobs.report.values.cost_model import CostNumbers, CostPart, StageCost
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers

NO_PRICE = "the cluster profile names no price"
_PARTS = {
    "forward": "training steps",
    "repeated": "steps repeated later",
    "idle": "steps of an earlier config",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation in the loop",
    "compile": "compiling",
    "startup": "start-up, export and the end",
    "between": "between steps",
    "unexplained": "unexplained",
}
"""Kinds of a training's budget, named as costs."""
_OWN_NAMES = {"stage in": "staging", AGAIN: "start-up again, after stops and failures"}
"""Parts with a name different from their kind's."""
_UNRECORDED = "starts that left no record"


def cost_numbers(
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    price: Mapping[str, object] | None,
) -> CostNumbers:
    """Return the cost of each stage, and the total.

    Args:
        stages: former ones too, they were paid for.
        training: for what GPUs were held.
        price: `gpu_hour`, `cpu_hour` and `currency` of the cluster profile; None without one.
    """
    begun = [stage for stage in stages if stage.num_attempts]  # the others have cost nothing yet
    by_stage = {t.stage: t for t in reversed(training)}
    currency = str(price["currency"]) if price else ""
    costs = tuple(
        StageCost(
            stage=stage.name,
            gpu_hours=stage.gpu_hours,
            cpu_hours=stage.cpu_hours,
            money=_money(stage, price),
            parts=_parts(stage, by_stage.get(stage.name)),
        )
        for stage in begun
    )
    return CostNumbers(
        currency=currency,
        stages=costs,
        gpu_hours=_total_cost([c.gpu_hours for c in costs], "GPU h"),
        cpu_hours=_total_cost([c.cpu_hours for c in costs], "CPU h"),
        money=_total_cost([c.money for c in costs], currency) if price else missing("", NO_PRICE),
    )


def money_of(
    gpu_hours: float, cpu_hours: float, price: Mapping[str, object] | None
) -> float | None:
    """Return the price of so many hours; None without a price."""
    if price is None:
        return None
    return gpu_hours * _number(price, "gpu_hour") + cpu_hours * _number(price, "cpu_hour")


def _money(stage: StageNumbers, price: Mapping[str, object] | None) -> Quantity:
    if price is None:
        return missing("", NO_PRICE)
    costs = []
    for name, hours in (("gpu_hour", stage.gpu_hours), ("cpu_hour", stage.cpu_hours)):
        value = None if hours.value is None else hours.value * _number(price, name)
        costs.append(replace(hours, value=value))
    return _total_cost(costs, str(price["currency"]))


def _parts(stage: StageNumbers, training: TrainingNumbers | None) -> tuple[CostPart, ...]:
    """Return the uses of GPUs. Attempts without a record are missing."""
    gpu_hours = stage.gpu_hours.value or 0.0
    if training is None or not gpu_hours:
        return ()
    lost = min(1.0, stage.unrecorded_gpu_hours / gpu_hours)
    shares: dict[str, float] = {}
    for part in training.budget:
        name = _OWN_NAMES.get(part.name) or _PARTS.get(part.kind, part.name)
        shares[name] = shares.get(name, 0.0) + part.share * (1 - lost)
    shares[_UNRECORDED] = lost
    return tuple(
        CostPart(name=name, gpu_hours=gpu_hours * share, share=share)
        for name, share in shares.items()
        if share > 0
    )


def _total_cost(numbers: Sequence[Quantity], unit: str) -> Quantity:
    """Return the sum of known values, a lower bound if some are unknown."""
    values = [n.value for n in numbers if n.value is not None]
    if not values:
        return missing(unit, next((n.missing for n in numbers), "no stage"))
    lacking = [n.missing or n.at_least for n in numbers if n.missing or n.at_least]
    return known(sum(values), unit, lacking[0] if lacking else "")


def _number(price: Mapping[str, object], name: str) -> float:
    value = price.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
