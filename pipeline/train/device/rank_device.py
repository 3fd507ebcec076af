"""Device, precision and number of threads of a rank, without fallbacks."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from pipeline.train.accelerate_settings import asked_precision
from pipeline.train.device.precision import capability_of, choose_precision
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.task_context import TaskContext

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class RankDevice:
    """Device, precision and number of threads of a rank."""

    device: torch.device
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    num_compute_threads: int

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of activations and of the gathered weights."""
        return _DTYPES[self.precision]


def prepare_device(config: TrainConfig, context: TaskContext) -> RankDevice:
    """Choose this rank's device and configure PyTorch from the config.

    Raises:
        StageConfigError: `device: cuda`, and this rank sees no GPU; or accelerate's file, which
            states the precision, cannot be read.
    """
    num_threads = config.num_compute_threads or threads_per_rank(
        os.environ.get("SLURM_CPUS_PER_TASK"),
        num_cpus=len(os.sched_getaffinity(0)),
        num_local_ranks=context.num_local_ranks,
    )
    torch.set_num_threads(num_threads)
    device = torch.device("cpu")
    if config.device == "cuda":
        if not torch.cuda.is_available() or not torch.cuda.device_count():
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)")
            message = (
                f"stage {context.stage}: config.device is cuda, but rank {context.rank} on node "
                f"{context.node_name} sees no GPU (CUDA_VISIBLE_DEVICES={visible}, torch "
                f"{torch.__version__}): set resources.gpus_per_node, or `device: cpu`"
            )
            raise StageConfigError(message)
        # A rank that is bound to GPUs of its own (`--gpus-per-task`) sees fewer than the node has.
        # If two ranks end up on one GPU all the same, the preflight refuses.
        device = torch.device("cuda", context.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    is_deterministic = config.deterministic or config.device == "cpu"
    if is_deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(is_deterministic)
    # Filling fresh memory finds reads of uninitialised values; reproducibility does not need it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by the module's class
    set_tf32(on=config.tf32)
    precision = choose_precision(asked_precision(config), capability_of(device))
    return RankDevice(device=device, precision=precision, num_compute_threads=num_threads)


def set_tf32(*, on: bool) -> None:
    """Set TF32 for matrix products and for convolutions, where PyTorch alone would use it."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def threads_per_rank(slurm_cpus: str | None, *, num_cpus: int, num_local_ranks: int) -> int:
    """Return compute threads of one rank: those from Slurm, else an equal share of the node."""
    if slurm_cpus is not None:
        return int(slurm_cpus)
    return max(1, num_cpus // num_local_ranks)
