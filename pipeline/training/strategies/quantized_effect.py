"""Check that 4-bit weights are unchanged when they are gathered for computing.

A cast on the way would change the codes of packed weights, and the model would train without an
error. So each layer is gathered once, before the first step, and its bytes are compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import xxhash
from torch import nn
from torch.distributed.tensor import DTensor

from pipeline.library_versions import can_shard_whole_numbers
from pipeline.models.quantized import PackedLinear, quantized_layers
from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from pipeline.training.strategies.fsdp_groups import units_within
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.quantize import storage_problem
from slurm_jobs.common.stage_config.train import TrainConfig


def check_dtypes(config: TrainConfig, workplace: Workplace) -> None:
    """Refuse a storage of 4-bit weights that does not fit the compute dtype on this device.

    Raises:
        StageConfigError: with the remedy.
    """
    if config.quantize is None:
        return
    problem = storage_problem(
        storage=config.quantize.storage,
        strategy=config.strategy,
        precision=workplace.precision,
    )
    if problem is not None:
        raise StageConfigError(problem)
    shards = config.strategy == "fsdp2" and config.quantize.storage == "uint8"
    if shards and not can_shard_whole_numbers():
        message = (
            f"quantize is set with strategy fsdp2, but torch {torch.__version__} cannot shard "
            "4-bit weights: install torch 2.12 to 2.14 in the stage's Python, or set `strategy: "
            "ddp`"
        )
        raise StageConfigError(message)


def hash_quantized(bare: nn.Module, ranks: Ranks) -> Mapping[str, str]:
    """Hash rank 0's quantised layers, before sharding; a collective."""
    if ranks.rank != 0:
        return ranks.from_main({})
    return ranks.from_main({name: _hash_layer(layer) for name, layer in quantized_layers(bare)})


def check_quantized(bare: nn.Module, expected: Mapping[str, str], ranks: Ranks) -> None:
    """Compare the gathered layers with the original ones; a collective.

    Args:
        bare: Sharded model.
        expected: Result of `hash_quantized`.
        ranks: All ranks.

    Raises:
        StageConfigError: on all ranks, naming the first layer that differs.
    """
    if not expected:
        return
    found = _hash_gathered(bare)
    names = sorted(expected.keys() | found.keys())
    wrong = [name for name in names if expected.get(name) != found.get(name)]
    by_rank = ranks.from_main(ranks.gather(wrong))
    for rank, lines in enumerate(by_rank):
        if lines:
            message = (
                f"{len(lines)} of {len(names)} layers in 4 bits have changed when rank {rank} "
                f"gathers them ({lines[0]}): set `quantize: {{storage: uint8}}`, and use the "
                "versions of constraints.txt"
            )
            raise StageConfigError(message)


def _hash_gathered(bare: nn.Module) -> dict[str, str]:
    layers = dict(quantized_layers(bare))
    units = units_within(bare)
    if not units:
        return {name: _hash_layer(layer) for name, layer in layers.items()}
    found: dict[str, str] = {}
    for unit in units:
        unit.unshard()
        for name, layer in layers.items():
            if name not in found and not isinstance(layer.weight, DTensor):
                found[name] = _hash_layer(layer)
        unit.reshard()
    return found


def _hash_layer(layer: PackedLinear) -> str:
    """Hash the packed weight and the scales of its blocks."""
    digest = xxhash.xxh3_128()
    for name, tensor in [("weight", layer.weight), *layer.named_buffers(recurse=False)]:
        # A copy: a NumPy view would keep the gathered memory alive.
        copy = tensor.detach().clone().cpu().contiguous()
        digest.update(f"{name} {copy.dtype} {tuple(copy.shape)}".encode())
        digest.update(copy.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
