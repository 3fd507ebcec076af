"""Strategies `single`, `ddp` and `fsdp2`, behind one interface."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pipeline.models.computation.compiling import count_compiled
from pipeline.models.computation.recompute import count_recomputed
from pipeline.models.computation.torch_versions import param_groups_of, replicate
from pipeline.models.finetuning.packed_linear import quantized_layers
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from slurm_jobs.shared.configs.training_parts import ShardingConfig
from slurm_jobs.shared.errors import StageConfigError

# Interface of all strategies for training.


MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelModel:
    """Model that a strategy has sharded or replicated over the ranks, and its optimizer."""

    model: nn.Module
    """Model that the loop calls, with the signature of `bare`."""
    bare: VisionLanguageModel
    """Without wrappers: its names are those of checkpoints and exports."""
    optimizer: torch.optim.Optimizer
    """Optimizer of the parameters that `bare` has now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyFacts:
    """Observed state of the trained model."""

    model_class: str
    """Class of the called model."""
    mesh: Mapping[str, int]
    """Ranks by dimension; empty without one."""
    placements: Mapping[str, int]
    """Number of parameters by placement: `Shard(dim=0)`, or `whole`."""
    dtypes: Mapping[str, int]
    """Number of parameters by dtype."""
    devices: Mapping[str, int]
    """Number of parameters by device type."""
    num_units: int
    """Parts of the model that are gathered one at a time; 0 without sharding."""
    compute_dtypes: tuple[str, ...]
    """Dtypes of forward and backward passes; one, if all units agree."""
    reduce_dtypes: tuple[str, ...]
    """Dtypes of gradient reduction; empty without one."""
    num_recomputed: int
    """Layers that are recomputed in the backward pass."""
    num_compiled: int
    """Layers that are compiled."""
    distributed_type: str = ""
    """Type that accelerate reports; empty without it."""


class Strategy:
    """Distributes a model over the ranks; all ranks call its methods together.

    The methods here are those of an unsharded model.
    """

    name: str
    """Name in the config."""
    loads_once = False
    """True if only rank 0 has weights, and other ranks build the model on "meta"."""

    def __init__(self, rank_device: RankDevice) -> None:
        self._rank_device = rank_device

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move the model to its devices, then make the optimizer.

        In this order: sharding replaces the parameters, and an earlier optimizer would silently
        update parameters that are no longer used.

        `bare` is on the CPU, equal on all ranks, or as `loads_once` requires; it is changed in
        place. `make_optimizer` is called with it when its parameters are the final ones.
        """
        raise NotImplementedError

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Return the model with other trained parameters, and a new optimizer for them."""
        return dataclasses.replace(parallel, optimizer=make_optimizer(parallel.bare))

    def forward_context(self) -> AbstractContextManager[None]:
        """Return the context for each forward pass."""
        return autocast(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Return the context for a microbatch; gradients are reduced with the last one."""
        raise NotImplementedError

    def whole(self, parallel: ParallelModel) -> AbstractContextManager[VisionLanguageModel]:
        """Provide the model with full weights on this rank, for passes without gradients.

        Entered and left by all ranks at once; within, each may run different passes.
        """
        return contextlib.nullcontext(parallel.bare)

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        raise NotImplementedError

    def close(self, parallel: ParallelModel) -> None:
        """Free resources that only training needs, after the last step."""
        parallel.optimizer.zero_grad()
        for unit in units_within(parallel.model):
            unit.reshard()


def policy_of(rank_device: RankDevice) -> MixedPrecisionPolicy:
    """Return the dtypes in which units of `fully_shard` gather and reduce.

    Under fp16 autocast casts the inputs of products, and units do not cast their inputs: the
    residual stream stays fp32 (see `pipeline.models.computation.fp32_residual`).
    """
    return MixedPrecisionPolicy(
        param_dtype=rank_device.dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=rank_device.dtype != torch.float16,
    )


def autocast_sharded(rank_device: RankDevice) -> AbstractContextManager[None]:
    """Return the context of a forward pass with weights that are cast when gathered."""
    return autocast(rank_device) if rank_device.dtype == torch.float16 else contextlib.nullcontext()


def autocast(rank_device: RankDevice) -> AbstractContextManager[None]:
    """Return the context of a forward pass with unsharded fp32 weights; nothing under fp32."""
    if rank_device.dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(rank_device.device.type, dtype=rank_device.dtype)


def read_facts(
    parallel: ParallelModel,
    *,
    mesh: Mapping[str, int],
    compute_dtypes: Iterable[torch.dtype],
    reduce_dtypes: Iterable[torch.dtype],
    num_units: int = 0,
) -> StrategyFacts:
    """Combine facts of the parameters with those that only the strategy knows."""
    parameters = list(parallel.bare.parameters())
    return StrategyFacts(
        model_class=type(parallel.model).__name__,
        mesh=mesh,
        placements=dict(Counter(placement_of(parameter) for parameter in parameters)),
        dtypes=dict(Counter(str(parameter.dtype) for parameter in parameters)),
        devices=dict(Counter(parameter.device.type for parameter in parameters)),
        num_units=num_units,
        compute_dtypes=tuple(sorted({str(dtype) for dtype in compute_dtypes})),
        reduce_dtypes=tuple(sorted({str(dtype) for dtype in reduce_dtypes})),
        num_recomputed=count_recomputed(parallel.bare),
        num_compiled=count_compiled(parallel.bare),
    )


def placement_of(parameter: torch.Tensor) -> str:
    """Return `Shard(dim=0)`, `Replicate(), Shard(dim=0)`, or `whole`."""
    if not isinstance(parameter, DTensor):
        return "whole"
    return ", ".join(repr(placement) for placement in parameter.placements)


def count_parameters(modules: Iterable[nn.Module]) -> int:
    """Count parameters of all modules, unsharded and unpacked."""
    num = 0
    for module in modules:
        num += sum(parameter.numel() for parameter in module.parameters())
        for _, layer in quantized_layers(module):
            num += layer.num_weights - layer.weight.numel()
    return num


# Access to torch's private state of a sharded model.
#
# A group is the parameters of one unit, gathered together.


def units_within(model: nn.Module) -> list[FSDPModule]:
    """Return the modules that `fully_shard` was applied to."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def groups_of(model: nn.Module) -> list[Any]:
    """Return their groups, in the same order."""
    return [group for unit in units_within(model) for group in param_groups_of(unit)]


def refresh_learned_dtypes(model: nn.Module) -> None:
    """Make torch reread which parameters have gradients, and of which dtype.

    It does so only before the first pass. A unit that was completely frozen then has no dtype
    for its gradients, and its first backward pass in half precision fails (observed with torch
    2.13).
    """
    for group in groups_of(model):
        group._init_mp_dtypes()  # noqa: SLF001 - see above


# Temporarily full weights of a sharded model on every rank.


@contextlib.contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Gather full weights in the compute dtype; entered and left by all ranks at once.

    Within, passes without gradients enter no collective, so each rank may run its own.
    Afterwards torch's resharding settings are restored, and it forgets these passes.
    """
    if isinstance(model, FSDPModule):
        # Torch takes the first module that runs as the root, and keeps the root's weights between
        # the passes unless set otherwise. Before a first step nothing has run.
        model._get_fsdp_state()._lazy_init()  # noqa: SLF001 - no public way
    units, groups = units_within(model), groups_of(model)
    mesh_infos = [group.post_forward_mesh_info for group in groups]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
        for group, mesh_info in zip(groups, mesh_infos, strict=True):
            # Torch records the order of forward passes until a backward pass ends, and prefetches
            # by it. Ranks with different numbers of passes would gather different units, and
            # deadlock (observed with torch 2.13).
            group._post_forward_indices.clear()  # noqa: SLF001 - see above
            group.comm_ctx.post_forward_order.clear()
            group.post_forward_mesh_info = mesh_info


# Distribution of weights that one rank has read: a node holds one full model, not one per rank.
#
# The other ranks build the model on the device "meta", which has shapes and no memory.


def share_weights(
    sharded: nn.Module, weights: Mapping[str, torch.Tensor], *, device: torch.device, offload: bool
) -> None:
    """Give every rank its shards of rank 0's weights, tensor by tensor; a collective.

    `sharded` has real parameters on rank 0, and is on "meta" elsewhere; `weights` are rank 0's, as
    before sharding. Buffers go to `device`; shards too, unless `offload`.
    """
    if dist.get_rank() != 0:
        sharded.to_empty(device="cpu" if offload else device)
    # Most buffers are in no state dict: they are computed when a model is built. By name, because
    # a model without weights may have been built in another order.
    buffers = dict(sharded.named_buffers(remove_duplicate=False))
    for name, buffer in sorted(buffers.items()):
        value = buffer.to(device)
        dist.broadcast(value, src=0)
        owner, _, own_name = name.rpartition(".")
        setattr(sharded.get_submodule(owner), own_name, value)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=offload)
    set_model_state_dict(sharded, dict(weights), options=options)


def check_can_be_shared(model: nn.Module) -> None:
    """Check a model on "meta", before it is sharded.

    Raises:
        StageConfigError: it has tensors that are neither parameters nor buffers.
    """
    strange = [
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    if strange:
        message = (
            f"strategy fsdp2: {', '.join(strange)} cannot be sent from rank 0, because they are "
            "neither parameters nor buffers of the model: set `strategy: ddp`"
        )
        raise StageConfigError(message)


# Assignment of ranks to shards of a model, and to replicas.


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Location of a rank."""

    node_name: str
    local_rank: int


def make_mesh(within: str, device_type: str, places: Sequence[Place]) -> DeviceMesh:
    """Return FSDP's mesh: one dimension, or replicated over nodes and sharded within.

    Raises:
        StageConfigError: `within` is `node`, but nodes do not have equal numbers of ranks in
            order.
    """
    if within == "node":
        names = ("replicate", "shard")
        return init_device_mesh(device_type, shape_by_nodes(places), mesh_dim_names=names)
    return init_device_mesh(device_type, (len(places),), mesh_dim_names=("shard",))


def shape_by_nodes(places: Sequence[Place]) -> tuple[int, int]:
    """Return the number of nodes and of ranks on each.

    Raises:
        StageConfigError: ranks do not count through one node after the other; a mesh of that
            shape would silently shard between nodes.
    """
    nodes = list(dict.fromkeys(place.node_name for place in places))
    counts = Counter(place.node_name for place in places)
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{count} on {node}" for node, count in counts.items())
        message = (
            f"sharding.within is node, but the nodes have unequal numbers of ranks ({listed}): "
            "give every node the same number (resources.tasks_per_node), or set `sharding: "
            "{within: all}`"
        )
        raise StageConfigError(message)
    num_local = counts[nodes[0]]
    expected = [
        Place(node_name=node, local_rank=local) for node in nodes for local in range(num_local)
    ]
    for rank, (place, wanted) in enumerate(zip(places, expected, strict=True)):
        if place != wanted:
            message = (
                f"sharding.within is node, but rank {rank} is number {place.local_rank} on "
                f"{place.node_name} instead of number {wanted.local_rank} on {wanted.node_name}: "
                "ranks must count through one node after the other (srun --distribution=block), "
                "or set `sharding: {within: all}`"
            )
            raise StageConfigError(message)
    return len(nodes), num_local


# `strategy: fsdp2`: parameters, gradients and optimizer sharded, by torch's own `fully_shard`.


class FullySharded(Strategy):
    """`strategy: fsdp2`."""

    name = "fsdp2"
    loads_once = True

    def __init__(
        self, rank_device: RankDevice, sharding: ShardingConfig, places: Sequence[Place]
    ) -> None:
        super().__init__(rank_device)
        self._sharding = sharding
        self._mesh: DeviceMesh = make_mesh(sharding.within, rank_device.device.type, places)

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Shard; the fp32 weights stay the master copy."""
        sharding, device = self._sharding, self._rank_device.device
        weights = {} if next(bare.parameters()).is_meta else dict(bare.state_dict())
        offload = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        options: dict[str, Any] = {
            "mesh": self._mesh,
            "mp_policy": policy_of(self._rank_device),
            "offload_policy": offload if sharding.cpu_offload else OffloadPolicy(),
        }
        units = units_of(bare, sharding.unit_min_params)
        # Rank 0's moves its weights to the device and keeps its shard: the full weights are never
        # there.
        for unit in units:
            fully_shard(unit, reshard_after_forward=sharding.reshard_after_forward, **options)
        # Both passes need the rest at once: by default torch keeps it between them.
        fully_shard(bare, **options)
        share_weights(bare, weights, device=device, offload=sharding.cpu_offload)
        prefetch_in_order(bare, units, sharding.forward_prefetch)
        bare.train()
        return ParallelModel(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Every pass reads what is frozen, and this its dtype."""
        refresh_learned_dtypes(parallel.model)
        return super().reparallelize(parallel, make_optimizer)

    def forward_context(self) -> AbstractContextManager[None]:
        """Weights are cast when they are gathered."""
        return autocast_sharded(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Set what the microbatch reduces."""
        assert isinstance(model, FSDPModule)
        reduces = is_last or self._sharding.accumulate == "sharded"
        model.set_requires_gradient_sync(reduces)
        model.set_is_last_backward(is_last)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def whole(self, parallel: ParallelModel) -> Iterator[VisionLanguageModel]:
        """Gather; in the compute dtype, on the device."""
        with gathered(parallel.model):
            yield parallel.bare

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        policies = [group.mp_policy for group in groups_of(parallel.model)]
        names = self._mesh.mesh_dim_names or ()
        return read_facts(
            parallel,
            mesh=dict(zip(names, self._mesh.shape, strict=True)),
            compute_dtypes=[policy.param_dtype or torch.float32 for policy in policies],
            reduce_dtypes=[policy.reduce_dtype or torch.float32 for policy in policies],
            num_units=len(units_within(parallel.model)),
        )


def units_of(bare: VisionLanguageModel, min_params: int) -> list[nn.Module]:
    """Return layers that are gathered one at a time, in order of execution."""
    towers = (tower for tower in bare.towers() if count_parameters(tower) >= min_params)
    return list(chain.from_iterable(towers))


def prefetch_in_order(root: Any, units: Sequence[Any], num_ahead: int) -> None:
    """Make each unit prefetch the next `num_ahead` ones before it computes."""
    for place, unit in enumerate((root, *units) if num_ahead else ()):
        unit.set_modules_to_forward_prefetch(list(units[place : place + num_ahead]))


class Replicated(Strategy):
    """`strategy: ddp`: every rank has the whole model, and gradients are averaged over the ranks.

    The set of averaged parameters is fixed when the model is wrapped. A parameter that is
    frozen then and trained later would diverge between ranks, so another selection needs
    another `parallelize`.
    """

    name = "ddp"

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move and wrap the model."""
        bare.to(self._rank_device.device).train()
        return ParallelModel(model=replicate(bare), bare=bare, optimizer=make_optimizer(bare))

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Wrap again, or newly trained parameters would diverge."""
        assert isinstance(parallel.model, DistributedDataParallel)
        take_apart(parallel.model)
        return self.parallelize(parallel.bare, make_optimizer)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Reduce with the last microbatch; the forward pass must be within it, too."""
        assert isinstance(model, DistributedDataParallel)
        return contextlib.nullcontext() if is_last else model.no_sync()

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        return read_facts(
            parallel,
            mesh={"replicate": dist.get_world_size()},
            compute_dtypes=[self._rank_device.dtype],
            reduce_dtypes=[torch.float32],
        )


def take_apart(wrapped: DistributedDataParallel) -> None:
    """Prepare a model for being wrapped again."""
    # Its hooks would reduce in addition to the new ones while it exists.
    wrapped._remove_autograd_hooks()  # type: ignore[no-untyped-call]  # noqa: SLF001
    # Its buckets are as large as all gradients, and any reference would keep them.
    del wrapped.logger, wrapped.reducer


class Single(Strategy):
    """`strategy: single`: one rank has the whole model."""

    name = "single"

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Move the model."""
        bare.to(self._rank_device.device).train()
        return ParallelModel(model=bare, bare=bare, optimizer=make_optimizer(bare))

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is reduced
        """Do nothing."""
        return contextlib.nullcontext()

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        return read_facts(
            parallel, mesh={}, compute_dtypes=[self._rank_device.dtype], reduce_dtypes=[]
        )
