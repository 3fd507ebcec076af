"""Strategy `accelerate`: the model prepared by accelerate from its own file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    autocast,
    autocast_sharded,
    gathered,
    groups_of,
    policy_of,
    read_facts,
    refresh_learned_dtypes,
    take_apart,
    units_within,
)
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.errors import StageConfigError

# An `Accelerator` as a rank of `accelerate launch --config_file FILE` would build it.
#
# accelerate passes a file to its ranks by environment variables, so its code reads the file here,
# too. The variables are set only while the accelerator is built: later they would make
# transformers load weights on the first rank alone. Inherited variables are removed: they would
# take effect where the file sets nothing.


_PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
_OURS = {"FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
"""Every rank has its weights already when accelerate gets them."""


def make_accelerator(
    path: str, file: AccelerateFile, rank_device: RankDevice, ranks: Ranks
) -> Accelerator:
    """Build it, and verify that it follows the file; every rank must call it.

    `ranks` have a process group, which accelerate uses.

    Raises:
        StageConfigError: accelerate cannot read the file, or does not follow it.
    """
    on_cpu = rank_device.device.type == "cpu"
    # State of an earlier accelerator would silently take precedence over the file.
    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001
    GradientState._reset_state()  # noqa: SLF001
    with _environment(_rank_variables(file, rank_device, ranks)):
        try:
            os.environ.update(_file_variables(path, ranks.num_ranks))
            accelerator = Accelerator(
                cpu=on_cpu,
                fsdp_plugin=_make_plugin(rank_device) if file.distributed_type == "FSDP" else None,
                kwargs_handlers=[
                    # Buffers are constants; and gradients would be in memory twice.
                    DistributedDataParallelKwargs(
                        broadcast_buffers=False, gradient_as_bucket_view=True
                    )
                ],
            )
        except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
            message = f"{path}: accelerate refuses it: {error}"
            raise StageConfigError(message) from error
    _check(accelerator, path, file, rank_device, ranks)
    return accelerator


def _make_plugin(rank_device: RankDevice) -> FullyShardedDataParallelPlugin:
    """Return the environment's plugin, without settings that reduce precision.

    By default accelerate reduces gradients in the compute dtype, and casts the model's output
    to it: a summed loss above 65,504 would be infinite under fp16.
    """
    plugin = FullyShardedDataParallelPlugin(mixed_precision_policy=policy_of(rank_device))
    if isinstance(plugin.cpu_offload, CPUOffloadPolicy):
        plugin.cpu_offload = CPUOffloadPolicy(pin_memory=rank_device.device.type == "cuda")
    return plugin


def _file_variables(path: str, num_ranks: int) -> dict[str, str]:
    """Return the variables of `accelerate launch`; ranks and their rendezvous come from Slurm."""
    parser = launch_command_parser()
    options = ["--num_processes", str(num_ranks), "--num_machines", "1", "--machine_rank", "0"]
    options += ["--main_process_port", "0", "--config_file", path]
    args, *_ = _validate_launch_command(parser.parse_args([*options, "no_script"]))
    variables = prepare_multi_gpu_env(args)
    return {k: v for k, v in variables.items() if k.startswith(_PREFIXES)} | _OURS


def _rank_variables(
    file: AccelerateFile, rank_device: RankDevice, ranks: Ranks
) -> dict[str, str | None]:
    """Return the variables of this rank; None removes a variable.

    accelerate uses LOCAL_RANK as the number of the GPU, which is wrong if Slurm shows each rank
    only one GPU, and sets the number of threads if OMP_NUM_THREADS is missing. All ranks count
    as local, or it would need an address on CPUs, to connect again.
    """
    inherited = {name: None for name in os.environ if name.startswith(_PREFIXES)}
    who = {
        "RANK": ranks.rank,
        "WORLD_SIZE": ranks.num_ranks,
        "LOCAL_RANK": rank_device.device.index or 0,
        "LOCAL_WORLD_SIZE": ranks.num_ranks,
    }
    is_alone = file.distributed_type == "NO"
    return {
        **inherited,
        **{name: None if is_alone else str(value) for name, value in who.items()},
        "OMP_NUM_THREADS": str(rank_device.num_compute_threads),
    }


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _check(
    accelerator: Accelerator, path: str, file: AccelerateFile, rank_device: RankDevice, ranks: Ranks
) -> None:
    """Verify before a model is built: accelerate silently replaces what it cannot do."""
    precision = {"no": "fp32"}.get(accelerator.mixed_precision, accelerator.mixed_precision)
    pairs = {
        "distributed_type": (accelerator.distributed_type.value, file.distributed_type),
        "mixed_precision": (precision, rank_device.precision),
        "device": (accelerator.device.type, rank_device.device.type),
        "rank": (accelerator.process_index, ranks.rank),
        "number of ranks": (accelerator.num_processes, ranks.num_ranks),
    }
    for what, (actual, wanted) in pairs.items():
        if actual != wanted:
            hint = "; accelerate shards nothing on a CPU" if wanted == "FSDP" else ""
            message = (
                f"strategy accelerate did not take effect: {path}: {what} is {actual}, expected "
                f"{wanted}{hint}; use the versions of constraints.txt, or another `strategy`"
            )
            raise StageConfigError(message)


class Accelerated(Strategy):
    """`strategy: accelerate`: a file of `accelerate config`, run by accelerate's own code.

    accelerate prepares the model. Loss scaling, clipping and updates stay in the loop, whose
    ranks skip a step together: accelerate would decide on each rank, and scales and weights
    would diverge.
    """

    name = "accelerate"

    def __init__(
        self, rank_device: RankDevice, path: str, file: AccelerateFile, ranks: Ranks
    ) -> None:
        super().__init__(rank_device)
        self._path = path
        self._accelerator: Accelerator = make_accelerator(path, file, rank_device, ranks)

    def parallelize(
        self, bare: VisionLanguageModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Let accelerate prepare the model."""
        model = self._shard(bare) if self._accelerator.is_fsdp2 else self._accelerator.prepare(bare)
        self._accelerator.free_memory()  # it would keep what it has prepared
        model.train()
        return ParallelModel(model=model, bare=bare, optimizer=make_optimizer(bare))

    def _shard(self, bare: VisionLanguageModel) -> nn.Module:
        """Shard with a temporary optimizer: accelerate shards no model without one.

        The real one is made from the sharded parameters. accelerate would identify its
        parameters by their addresses, which are equal for empty ones and those on "meta".

        Raises:
            StageConfigError: the model has no layer of a class in the file.
        """
        plugin = self._accelerator.state.fsdp_plugin
        known = sorted({type(layer).__name__ for tower in bare.towers() for layer in tower})
        if not plugin.transformer_cls_names_to_wrap:
            plugin.transformer_cls_names_to_wrap = known
        there = {type(module).__name__ for module in bare.modules()}
        missing = [name for name in plugin.transformer_cls_names_to_wrap if name not in there]
        if missing:
            message = (
                f"{self._path}: fsdp_transformer_layer_cls_to_wrap names {', '.join(missing)}, "
                f"but this model has none; its layers are {', '.join(known)}, the default "
                "without this key"
            )
            raise StageConfigError(message)
        thrown_away = torch.optim.SGD([next(bare.parameters())])
        model: nn.Module = self._accelerator.prepare(bare, thrown_away)[0]
        return model

    def reparallelize(
        self, parallel: ParallelModel, make_optimizer: MakeOptimizer
    ) -> ParallelModel:
        """Prepare ddp again; sharding rereads what is frozen."""
        if not isinstance(parallel.model, DistributedDataParallel):
            refresh_learned_dtypes(parallel.model)
            return super().reparallelize(parallel, make_optimizer)
        take_apart(parallel.model)
        self._unwrap(parallel)
        return self.parallelize(parallel.bare, make_optimizer)

    def _unwrap(self, parallel: ParallelModel) -> None:
        """Restore the model's `forward`; each `prepare` wraps it once more."""
        self._accelerator.unwrap_model(parallel.model, keep_fp32_wrapper=False)

    def forward_context(self) -> AbstractContextManager[None]:
        """Cast unsharded weights, also for fp16 on a CPU.

        On a GPU accelerate also casts within the forward pass, in the same way.
        """
        context = autocast_sharded if self._accelerator.is_fsdp2 else autocast
        return context(self._rank_device)

    def microbatch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """Reduce with the last microbatch."""
        if isinstance(model, FSDPModule):
            model.set_is_last_backward(is_last)
        return contextlib.nullcontext() if is_last else self._accelerator.no_sync(model)

    @contextlib.contextmanager
    def whole(self, parallel: ParallelModel) -> Iterator[VisionLanguageModel]:
        """Gather, if the model is sharded."""
        with gathered(parallel.model):
            yield parallel.bare

    def facts(self, parallel: ParallelModel) -> StrategyFacts:
        """Return the observed state."""
        kind = self._accelerator.distributed_type.value
        policies = [group.mp_policy for group in groups_of(parallel.model)]
        is_wrapped = isinstance(parallel.model, DistributedDataParallel)
        dtypes = [policy.param_dtype or torch.float32 for policy in policies]
        reduces = [policy.reduce_dtype or torch.float32 for policy in policies]
        facts = read_facts(
            parallel,
            mesh={"replicate": dist.get_world_size()} if is_wrapped else _mesh_of(parallel.bare),
            compute_dtypes=dtypes or [self._rank_device.dtype],
            reduce_dtypes=[torch.float32] if is_wrapped else reduces,
            num_units=len(units_within(parallel.model)),
        )
        return dataclasses.replace(facts, distributed_type=kind)

    def close(self, parallel: ParallelModel) -> None:
        """Free resources, and restore the model's `forward`."""
        super().close(parallel)
        self._unwrap(parallel)


def _mesh_of(bare: nn.Module) -> dict[str, int]:
    """Return ranks by dimension, from the first parameter on a mesh."""
    on_mesh = (p.device_mesh for p in bare.parameters() if isinstance(p, DTensor))
    mesh = next(on_mesh, None)
    if mesh is None:
        return {}
    return dict(zip(("replicate", "shard")[-mesh.ndim :], mesh.shape, strict=True))
