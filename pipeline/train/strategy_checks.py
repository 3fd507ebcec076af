"""Comparison of what a strategy was asked for with what the model shows."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import xxhash
from torch import nn
from torch.distributed.tensor import DTensor

from pipeline.models.compute import can_shard_whole_numbers, chosen_layers
from pipeline.models.quantize import STORAGE_DTYPES, PackedLinear, quantized_layers, quantized_names
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device import Workplace
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import Spread, StrategyFacts, placement_of, units_of, units_within
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.configs.model_parts import storage_problem
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

# Expected result of a strategy, derived from the config alone.


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


# Log sentence about a model's distribution; `StrategyFacts` are for programs.


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


# Checks that the requested settings took effect: such errors would train silently.
#
# Observed: plugins that were ignored, optimizers of unused parameters (with a normal loss), and
# shards of different models combined into one.


_MOST_NAMES = 5
"""Number of parameters named in a message."""
_REMEDY = "; use the versions of constraints.txt, or another `strategy`"


def check_effect(
    spread: Spread,
    facts: StrategyFacts,
    config: TrainConfig,
    workplace: Workplace,
    num_ranks: int,
    *,
    file: AccelerateFile | None = None,
) -> None:
    """Compare the observed state of model and optimizer with the requested one.

    `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: naming the first difference.
    """
    asked = asked_of(spread.bare, config, workplace, file)
    _check_parameters(spread.bare, config, asked)
    found = {
        "accelerate's distributed_type": (facts.distributed_type, asked.distributed_type),
        "the model is called as": (facts.model_class, asked.model_class),
        "ranks in the mesh": (math.prod(facts.mesh.values()), num_ranks),
        "parts gathered one at a time": (facts.num_units, asked.num_units),
        "computes in": (", ".join(facts.compute_dtypes), str(workplace.dtype)),
        "reduces as": (", ".join(facts.reduce_dtypes), asked.reduces),
        "layers recomputed in the backward pass": (facts.num_recomputed, asked.num_recomputed),
        "layers that are compiled": (facts.num_compiled, asked.num_compiled),
    }
    for what, (is_so, wanted) in found.items():
        if is_so != wanted:
            message = (
                f"strategy {config.strategy} did not take effect: {what}: {is_so}, expected "
                f"{wanted}{_REMEDY}"
            )
            raise StageConfigError(message)
    check_optimizer(spread.bare, spread.optimizer)


def _check_parameters(bare: nn.Module, config: TrainConfig, asked: Asked) -> None:
    wanted = {
        "lies": asked.placement,
        "is on": asked.device,
    }
    packed = quantized_names(bare)
    for name, parameter in bare.named_parameters():
        if name in packed:
            assert config.quantize is not None
            wanted["is stored as"] = str(STORAGE_DTYPES[config.quantize.storage])
        else:
            wanted["is stored as"] = str(torch.float32)
        found = {
            "lies": placement_of(parameter),
            "is stored as": str(parameter.dtype),
            "is on": parameter.device.type,
        }
        for what, value in wanted.items():
            if found[what] != value:
                message = (
                    f"strategy {config.strategy} did not take effect: {name} {what} "
                    f"{found[what]}, expected {value}{_REMEDY}"
                )
                raise StageConfigError(message)


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
    told = [f"{_some(names)}: {what}" for what, names in problems.items() if names]
    if num_strange:
        told.append(f"{num_strange} parameters of the optimizer are not the model's")
    if told:
        message = (
            f"optimizer and model do not belong together ({'; '.join(told)}): make the optimizer "
            "when the strategy has spread the model, of all parameters that learn"
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
        name: f"{tensor.dtype} {tuple(tensor.shape)}" + ("" if shapes_only else f" {_hash(tensor)}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    by_rank = ranks.gather(mine)
    problem = ranks.from_main(_describe_difference(by_rank) if by_rank else None)
    if problem:
        raise StageConfigError(problem)


def _hash(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    return xxhash.xxh3_64_hexdigest(data)


def _describe_difference(by_rank: Sequence[Mapping[str, str]]) -> str | None:
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        names = [n for n in first.keys() | other.keys() if first.get(n) != other.get(n)]
        if names:
            return (
                f"rank {rank} has built other weights than rank 0 ({_some(sorted(names))}): the "
                "model's folder, its files or the versions of libraries differ between nodes; "
                "give all of them the same, on the shared file system"
            )
    return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


# Check that 4-bit weights are unchanged when they are gathered for computing.
#
# A cast on the way would change the codes of packed weights, and the model would train without an
# error. So each layer is gathered once, before the first step, and its bytes are compared.


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
