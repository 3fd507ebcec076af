"""Comparison of what a strategy was asked for with what the model shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import xxhash
from torch import nn
from torch.distributed.tensor import DTensor

from pipeline.models.computation.compiling import chosen_layers
from pipeline.models.computation.torch_versions import can_shard_whole_numbers
from pipeline.models.finetuning.packed_linear import (
    STORAGE_DTYPES,
    PackedLinear,
    quantized_layers,
    quantized_names,
)
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import (
    ParallelModel,
    StrategyFacts,
    placement_of,
    units_of,
    units_within,
)
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.configs.model_parts import storage_problem
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

# Expected result of a strategy, derived from the config alone.


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
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
) -> Asked:
    """Return the expected facts."""
    plain, device, sharding = _plain_class(bare), rank_device.device.type, config.sharding
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
        return Asked(model_class=plain, device=device, reduces="", distributed_type=kind)
    if not shards:
        name = "DistributedDataParallel"
        return Asked(model_class=name, device=device, distributed_type=kind)
    return Asked(
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
    layers = {_plain_class(layer) for tower in bare.towers() for layer in tower}
    names = file.layer_classes or layers
    return [m for m in bare.modules() if m is not bare and _plain_class(m) in names]


def _plain_class(module: object) -> str:
    return type(module).__name__.removeprefix("FSDP")


# Log sentence about a model's distribution; `StrategyFacts` are for programs.


_SHORT = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
"""Names in `precision`."""


def describe_parallel_model(strategy: str, parallel: ParallelModel, facts: StrategyFacts) -> str:
    """Describe strategy, ranks, units, precision, and the location of parameters."""
    kind = f" ({facts.distributed_type})" if facts.distributed_type else ""
    parts = [f"{strategy}{kind}{_describe_mesh(facts.mesh)}"]
    if facts.num_units:
        classes = Counter(_plain_class(unit) for unit in units_within(parallel.model))
        listed = ", ".join(f"{number} {name}" for name, number in classes.items())
        parts.append(f"{_counted('unit', facts.num_units)} gathered one at a time ({listed})")
    computes, reduces = (
        " and ".join(_short(dtype) for dtype in dtypes)
        for dtypes in (facts.compute_dtypes, facts.reduce_dtypes)
    )
    reduced = f", gradients are reduced in {reduces}" if reduces else ""
    parts.append(f"forward and backward passes compute in {computes}{reduced}")
    stored, devices = (
        _short(next(iter(counts)))
        if len(counts) == 1
        else " and ".join(f"{_short(name)} ({number:,})" for name, number in counts.items())
        for counts in (facts.dtypes, facts.devices)
    )
    parts.append(f"parameters are stored as {stored} on {devices}")
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


def _short(name: str) -> str:
    return _SHORT.get(name, name.removeprefix("torch."))


def _counted(thing: str, number: int) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


# Checks that the requested settings took effect: such errors would train silently.
#
# Observed: plugins that were ignored, optimizers of unused parameters (with a normal loss), and
# shards of different models combined into one.


_MOST_NAMES = 5
"""Number of parameters named in a message."""


def check_effect(
    parallel: ParallelModel,
    facts: StrategyFacts,
    config: TrainConfig,
    rank_device: RankDevice,
    num_ranks: int,
    *,
    file: AccelerateFile | None = None,
) -> None:
    """Compare the observed state of model and optimizer with the requested one.

    `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: naming the first difference.
    """
    bare = parallel.bare
    requested = asked_of(bare, config, rank_device, file)
    packed = quantized_names(bare)
    storage = None if config.quantize is None else STORAGE_DTYPES[config.quantize.storage]
    num_layers = sum(len(tower) for tower in bare.towers())
    compiled = [] if config.compile is None else chosen_layers(bare, config.compile)
    observed: list[tuple[str, object, object]] = [
        (f"{name} {what}", value, wanted)
        for name, parameter in bare.named_parameters()
        for what, value, wanted in (
            ("has the placement", placement_of(parameter), requested.placement),
            ("is on", parameter.device.type, requested.device),
            (
                "is stored as",
                str(parameter.dtype),
                str(storage if name in packed else torch.float32),
            ),
        )
    ]
    observed += [
        (f"{what}:", value, wanted)
        for what, value, wanted in (
            ("accelerate's distributed_type", facts.distributed_type, requested.distributed_type),
            ("the model is called as", facts.model_class, requested.model_class),
            ("ranks in the mesh", math.prod(facts.mesh.values()), num_ranks),
            ("parts gathered one at a time", facts.num_units, requested.num_units),
            ("computes in", ", ".join(facts.compute_dtypes), str(rank_device.dtype)),
            ("reduces as", ", ".join(facts.reduce_dtypes), requested.reduces),
            (
                "layers recomputed in the backward pass",
                facts.num_recomputed,
                num_layers if config.activation_checkpointing else 0,
            ),
            ("layers that are compiled", facts.num_compiled, len(compiled)),
        )
    ]
    for what, value, wanted in observed:
        if value != wanted:
            message = (
                f"strategy {config.strategy} did not take effect: {what} {value}, expected "
                f"{wanted}; use the versions of constraints.txt, or another `strategy`"
            )
            raise StageConfigError(message)
    check_optimizer(bare, parallel.optimizer)


def check_optimizer(bare: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that exactly the trained parameters are in the optimizer, each in one group.

    Raises:
        StageConfigError: naming those that are not.
    """
    counts = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
    known = {id(parameter) for parameter in bare.parameters()}
    num_strange = sum(key not in known for key in counts)
    learning = [(name, p) for name, p in bare.named_parameters() if p.requires_grad]
    problems = {
        "in no group, and would never change": [n for n, p in learning if not counts[id(p)]],
        "in several groups": [n for n, p in learning if counts[id(p)] > 1],
    }
    lines = [f"{_some(names)}: {what}" for what, names in problems.items() if names]
    if num_strange:
        lines.append(f"{num_strange} parameters of the optimizer are not the model's")
    if lines:
        message = (
            f"optimizer and model do not belong together ({'; '.join(lines)}): make the optimizer "
            "when the strategy has parallelized the model, of all parameters that learn"
        )
        raise StageConfigError(message)


def check_gradients(bare: nn.Module, ranks: Ranks) -> None:
    """Check after the first backward pass that every trained parameter has a gradient.

    A collective.

    Raises:
        StageConfigError: on all ranks, naming those that have none.
    """
    lacking = [n for n, p in bare.named_parameters() if p.requires_grad and p.grad is None]
    by_rank = ranks.from_main(ranks.gather(lacking))
    for rank, names in enumerate(by_rank):
        if names:
            message = (
                f"after the first backward pass {_some(names)} of rank {rank} have no gradient: "
                "nothing in this batch's loss depends on them; freeze them, or let the model use "
                "them for every batch"
            )
            raise StageConfigError(message)


def check_equal_weights(model: nn.Module, ranks: Ranks, *, shapes_only: bool = False) -> None:
    """Check that every rank built the same weights and buffers; a collective, before sharding.

    They are compared instead of sent: ranks differ for a reason (another file on a node,
    another version of a library) that the user must know. `shapes_only` is for weights that
    rank 0 sends.

    Raises:
        StageConfigError: on all ranks, naming tensors and the first rank that differs.
    """
    mine = {
        name: f"{tensor.dtype} {tuple(tensor.shape)}"
        + ("" if shapes_only else f" {xxhash.xxh3_64_hexdigest(_bytes_of(tensor.detach()))}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    by_rank, problem = ranks.gather(mine), None
    for rank, other in enumerate(by_rank):  # on rank 0
        first = by_rank[0]
        names = [n for n in first.keys() | other.keys() if first.get(n) != other.get(n)]
        if names and problem is None:
            problem = (
                f"rank {rank} has built other weights than rank 0 ({_some(sorted(names))}): the "
                "model's folder, its files or the versions of libraries differ between nodes; "
                "give all of them the same, on the shared file system"
            )
    if problem := ranks.from_main(problem):
        raise StageConfigError(problem)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


# Check that 4-bit weights are unchanged when they are gathered for computing.
#
# A cast on the way would change the codes of packed weights, and the model would train without an
# error. So each layer is gathered once, before the first step, and its bytes are compared.


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
    """Hash the packed weight and the scales of its blocks."""
    digest = xxhash.xxh3_128()
    for name, tensor in [("weight", layer.weight), *layer.named_buffers(recurse=False)]:
        # A copy: a NumPy view would keep the gathered memory alive.
        copy = tensor.detach().clone().cpu()
        digest.update(f"{name} {copy.dtype} {tuple(copy.shape)}".encode())
        digest.update(_bytes_of(copy))
    return digest.hexdigest()
