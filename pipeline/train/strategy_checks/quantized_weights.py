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

from pipeline.models.computation.torch_versions import can_shard_whole_numbers
from pipeline.models.finetuning.packed_linear import PackedLinear, quantized_layers
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.fsdp_units import units_within
from pipeline.train.strategy_checks.equal_weights import bytes_of
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import storage_problem
from slurm_jobs.formats.configs.train import TrainConfig


def check_dtypes(config: TrainConfig, rank_device: RankDevice) -> None:
    """Refuse a storage of 4-bit weights that does not fit the compute dtype on this device.

    Raises:
        StageConfigError: with the remedy.
    """
    if config.quantize is None:
        return
    problem = storage_problem(
        storage=config.quantize.storage,
        strategy=config.strategy,
        precision=rank_device.precision,
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
    layers = quantized_layers(bare) if ranks.rank == 0 else ()
    hashes: dict[str, str] = {name: _hash_layer(layer) for name, layer in layers}
    return dict(ranks.from_main(hashes))


def check_quantized(bare: nn.Module, expected: Mapping[str, str], ranks: Ranks) -> None:
    """Compare the gathered layers with the original ones; a collective.

    `expected` is the result of `hash_quantized`.

    Raises:
        StageConfigError: on all ranks, naming the first layer that differs.
    """
    if not expected:
        return
    layers, units = dict(quantized_layers(bare)), units_within(bare)
    hashes = {} if units else {name: _hash_layer(layer) for name, layer in layers.items()}
    for unit in units:
        unit.unshard()
        for name, layer in layers.items():
            if name not in hashes and not isinstance(layer.weight, DTensor):
                hashes[name] = _hash_layer(layer)
        unit.reshard()
    names = sorted(expected.keys() | hashes.keys())
    wrong = [name for name in names if expected.get(name) != hashes.get(name)]
    by_rank = ranks.from_main(ranks.gather(wrong))
    for rank, lines in enumerate(by_rank):
        if lines:
            message = (
                f"{len(lines)} of {len(names)} layers in 4 bits have changed when rank {rank} "
                f"gathers them ({lines[0]}): set `quantize: {{storage: uint8}}`, and use the "
                "versions of constraints.txt"
            )
            raise StageConfigError(message)


def _hash_layer(layer: PackedLinear) -> str:
    digest = xxhash.xxh3_128()
    for name, tensor in [("weight", layer.weight), *layer.named_buffers(recurse=False)]:
        # A copy: a NumPy view would keep the gathered memory alive.
        copy = tensor.detach().clone().cpu()
        digest.update(f"{name} {copy.dtype} {tuple(copy.shape)}".encode())
        digest.update(bytes_of(copy))
    return digest.hexdigest()
