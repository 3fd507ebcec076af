"""An `Accelerator` as a rank of `accelerate launch --config_file FILE` would build it.

accelerate passes a file to its ranks by environment variables, so its code reads the file here,
too. The variables are set only while the accelerator is built: later they would make
transformers load weights on the first rank alone. Inherited variables are removed: they would
take effect where the file sets nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import CPUOffloadPolicy

from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import policy_of
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.accelerate_file import AccelerateFile

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
            raise StageDataError(message) from error
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
