"""Expected result of a strategy, derived from the config alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from pipeline.models import VisionLanguageModel
from pipeline.models.compiling import chosen_layers
from pipeline.training.device import Workplace
from pipeline.training.strategies.fully_sharded import units_of
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.stage_config.train import TrainConfig

_SHARDED, _REPLICATED_SHARDS = "Shard(dim=0)", "Replicate(), Shard(dim=0)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Part of `StrategyFacts` that follows from the config, and the location of parameters."""

    distributed_type: str
    model_class: str
    num_units: int
    placement: str
    """Placement of every parameter."""
    device: str
    """Device of parameters between the passes."""
    reduces: str
    """Dtype of gradient reduction; empty without one."""
    num_recomputed: int = 0
    """Layers that are recomputed in the backward pass."""
    num_compiled: int = 0
    """Layers that are compiled."""


def asked_of(
    bare: VisionLanguageModel,
    config: TrainConfig,
    workplace: Workplace,
    file: AccelerateFile | None,
) -> Asked:
    """Return the expected facts.

    Args:
        bare: Model, distributed by any strategy.
        config: Config of the training.
        workplace: Workplace of the rank.
        file: File of `strategy: accelerate`.
    """
    num_layers = sum(len(tower) for tower in bare.towers())
    return dataclasses.replace(
        _asked_of_strategy(bare, config, workplace, file),
        num_recomputed=num_layers if config.activation_checkpointing else 0,
        num_compiled=0 if config.compile is None else len(chosen_layers(bare, config.compile)),
    )


def _asked_of_strategy(
    bare: VisionLanguageModel,
    config: TrainConfig,
    workplace: Workplace,
    file: AccelerateFile | None,
) -> Asked:
    if file is not None:
        return _asked_of_file(bare, workplace, file)
    plain, device = _plain_class(bare), workplace.device.type
    reduces = "" if config.strategy == "single" else str(torch.float32)
    if config.strategy != "fsdp2":
        name = "DistributedDataParallel" if config.strategy == "ddp" else plain
        return _whole(name, device, reduces)
    sharding = config.sharding
    return Asked(
        distributed_type="",
        model_class=f"FSDP{plain}",
        num_units=1 + len(units_of(bare, sharding.unit_min_params)),
        placement=_SHARDED if sharding.within == "all" else _REPLICATED_SHARDS,
        device="cpu" if sharding.cpu_offload else device,
        reduces=reduces,
    )


def _asked_of_file(bare: VisionLanguageModel, workplace: Workplace, file: AccelerateFile) -> Asked:
    plain, device, kind = _plain_class(bare), workplace.device.type, file.distributed_type
    if kind == "NO":
        return _whole(plain, device, "", kind)
    if kind != "FSDP":
        return _whole("DistributedDataParallel", device, str(torch.float32), kind)
    return Asked(
        distributed_type=kind,
        model_class=f"FSDP{plain}",
        num_units=1 + len(wrapped_by_file(bare, file)),
        placement=_SHARDED if file.num_replicas == 1 else _REPLICATED_SHARDS,
        device="cpu" if file.offloads else device,
        reduces=str(torch.float32),
    )


def wrapped_by_file(bare: VisionLanguageModel, file: AccelerateFile) -> list[torch.nn.Module]:
    """Return the parts of the model that a file of type FSDP gathers one at a time."""
    if not file.wraps_layers:
        return []
    layers = {_plain_class(layer) for tower in bare.towers() for layer in tower}
    names = file.layer_classes or layers
    return [m for m in bare.modules() if m is not bare and _plain_class(m) in names]


def _whole(model_class: str, device: str, reduces: str, kind: str = "") -> Asked:
    return Asked(
        distributed_type=kind,
        model_class=model_class,
        num_units=0,
        placement="whole",
        device=device,
        reduces=reduces,
    )


def _plain_class(module: torch.nn.Module) -> str:
    return type(module).__name__.removeprefix("FSDP")
