"""Device, precision and number of threads of a rank, without fallbacks."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.timing import read_process_memory
from pipeline.training.accelerate_config import asked_precision
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.ranges import parse_ranges, ranges_text
from slurm_jobs.common.stage_config.train import TrainConfig

_GENERATORS_WORD = 4
"""Separates these seeds from those of the order, of augmentation and of streams."""
_BF16_CAPABILITY = (8, 0)
"""Below it torch.cuda.is_bf16_supported() returns True, but the card emulates bf16."""
_FP16_CAPABILITY = (7, 0)
"""From this capability on, cards have tensor cores, with which fp16 is faster than fp32."""
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Workplace:
    """Device and precision of a rank."""

    device: torch.device
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    num_compute_threads: int

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of activations and of the gathered weights."""
        return _DTYPES[self.precision]


def prepare_device(config: TrainConfig, context: TaskContext) -> Workplace:
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
    if config.device == "cuda":
        _require_gpu(context)
        device = torch.device("cuda", context.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    _set_determinism(on=config.deterministic or config.device == "cpu")
    _set_tf32(on=config.tf32)
    precision = choose_precision(asked_precision(config), capability_of(device))
    return Workplace(device=device, precision=precision, num_compute_threads=num_threads)


def near_cores(device: torch.device) -> tuple[int, ...]:
    """Return the cores of a GPU's NUMA node; none for a CPU, or if unknown."""
    if device.type != "cuda":
        return ()
    properties = torch.cuda.get_device_properties(device)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    domain, bus, number = (getattr(properties, name, -1) for name in names)
    if min(domain, bus, number) < 0:  # a build of torch without this attribute
        return ()
    return cores_near(f"{domain:04x}:{bus:02x}:{number:02x}.0")


def cores_near(pci_address: str, devices: Path = Path("/sys/bus/pci/devices")) -> tuple[int, ...]:
    """Return the cores of a PCI device's NUMA node; none if Linux does not report it."""
    with suppress(OSError, ValueError):
        return parse_ranges((devices / pci_address / "local_cpulist").read_text().strip())
    return ()


def far_text(cores: Collection[int], near: Collection[int]) -> str:
    """Return the warning for a rank without any cores near its GPU."""
    if not near or {*cores} & {*near}:
        return ""
    return (
        f"this rank runs on cores {ranges_text(sorted(cores))}, but its GPU is near cores "
        f"{ranges_text(near)}: copies to it cross sockets. The report has the remedy"
    )


def seed_generators(seed: int, rank: int) -> None:
    """Seed this rank's random number generators, from which dropout draws.

    Without it each process would start from random seeds, and the same spec would give other
    weights each time. A checkpoint that is restored later has its own state.
    """
    words = np.random.SeedSequence([_GENERATORS_WORD, seed, rank]).generate_state(3)
    torch_seed, numpy_seed, python_seed = (int(word) for word in words)
    torch.manual_seed(torch_seed)  # of all devices
    np.random.seed(numpy_seed)  # noqa: NPY002 - what libraries draw from without asking
    random.seed(python_seed)


def threads_per_rank(slurm_cpus: str | None, *, num_cpus: int, num_local_ranks: int) -> int:
    """Return compute threads of one rank: those from Slurm, else an equal share of the node."""
    if slurm_cpus is not None:
        return int(slurm_cpus)
    return max(1, num_cpus // num_local_ranks)


def native_precisions(capability: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the precisions that a GPU of this capability has units for; `fp32` on a CPU (None)."""
    if capability is None or capability < _FP16_CAPABILITY:
        return ("fp32",)
    return ("fp32", "fp16", "bf16") if capability >= _BF16_CAPABILITY else ("fp32", "fp16")


def choose_precision(asked: str, capability: tuple[int, int] | None) -> str:
    """Resolve `precision` for a GPU of this compute capability, or for a CPU (None).

    Raises:
        StageConfigError: bf16 on a GPU that only emulates it.
    """
    native = capability is not None and capability >= _BF16_CAPABILITY
    if asked == "auto":
        halved = "fp16" if capability is not None and capability >= _FP16_CAPABILITY else "fp32"
        return "bf16" if native else halved
    if asked == "bf16" and capability is not None and not native:
        message = (
            "precision is bf16, but this GPU has compute capability "
            f"{capability[0]}.{capability[1]}, which only emulates it: set `precision: fp16`, or "
            "request a GPU of capability 8.0 or above (A100)"
        )
        raise StageConfigError(message)
    return asked


def read_device_memory(device: torch.device) -> tuple[float, int]:
    """Return peak bytes and allocator retries so far; the allocator's counters, no synchronisation.

    One query per step: `memory_stats` would flatten and sort some hundred counters in Python.
    """
    if device.type != "cuda":
        return read_process_memory()
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    peak_bytes = stats["allocated_bytes"]["all"]["peak"]
    return float(peak_bytes), int(stats["num_alloc_retries"])


def give_back_memory(device: torch.device) -> None:
    """Free unreferenced device memory, including reference cycles of modules and hooks.

    GPU memory that PyTorch caches is returned to the driver, so that blocks of other sizes fit.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _require_gpu(context: TaskContext) -> None:
    if torch.cuda.is_available() and torch.cuda.device_count() > 0:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)")
    message = (
        f"stage {context.stage}: config.device is cuda, but rank {context.rank} on node "
        f"{context.node_name} sees no GPU (CUDA_VISIBLE_DEVICES={visible}, torch "
        f"{torch.__version__}): set resources.gpus_per_node, or `device: cpu`"
    )
    raise StageConfigError(message)


def capability_of(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; None for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _set_tf32(*, on: bool) -> None:
    """Set TF32 for matrix products and for convolutions, where PyTorch alone would use it."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def _set_determinism(*, on: bool) -> None:
    if on:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(on)
    # Filling fresh memory finds reads of uninitialised values; reproducibility does not need it.
    torch.utils.deterministic.fill_uninitialized_memory = False
