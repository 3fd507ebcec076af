"""Expected result of a strategy, derived from the config alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.fully_sharded import units_of
from slurm_jobs.formats.accelerate_file import AccelerateFile
from slurm_jobs.formats.configs.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedFacts:
    """Part of `StrategyFacts` that follows from the config, and the location of parameters."""

    model_class: str
    device: str
    """Device of parameters between the passes."""
    reduces: str = str(torch.float32)
    """Dtype of gradient reduction; empty without one."""
    distributed_type: str = ""
    num_units: int = 0
    placement: str = "whole"
    """Placement of every parameter."""


def asked_of(
    bare: VisionLanguageModel,
    config: TrainConfig,
    rank_device: RankDevice,
    file: AccelerateFile | None,
) -> ExpectedFacts:
    """Return the expected facts."""
    plain, device, sharding = plain_class(bare), rank_device.device.type, config.sharding
    if file is None:
        kind = ""
        shards, is_alone = config.strategy == "fsdp2", config.strategy == "single"
        replicates, offloads = sharding.within != "all", sharding.cpu_offload
        units = units_of(bare, sharding.unit_min_params) if shards else []
    else:
        kind = file.distributed_type
        shards, is_alone = kind == "FSDP", kind == "NO"
        replicates, offloads = file.num_replicas != 1, file.offloads
        units = wrapped_by_file(bare, file) if shards else []
    if is_alone:
        return ExpectedFacts(model_class=plain, device=device, reduces="", distributed_type=kind)
    if not shards:
        name = "DistributedDataParallel"
        return ExpectedFacts(model_class=name, device=device, distributed_type=kind)
    return ExpectedFacts(
        model_class=f"FSDP{plain}",
        device="cpu" if offloads else device,
        distributed_type=kind,
        num_units=1 + len(units),
        placement="Replicate(), Shard(dim=0)" if replicates else "Shard(dim=0)",
    )


def wrapped_by_file(bare: VisionLanguageModel, file: AccelerateFile) -> list[torch.nn.Module]:
    """Return the parts of the model that a file of type FSDP gathers one at a time."""
    if not file.wraps_layers:
        return []
    layers = {plain_class(layer) for tower in bare.towers() for layer in tower}
    names = file.layer_classes or layers
    return [m for m in bare.modules() if m is not bare and plain_class(m) in names]


def plain_class(module: object) -> str:
    """Return the name of the class before `fully_shard` changed it."""
    return type(module).__name__.removeprefix("FSDP")
