"""Device of a rank: its GPU, precision and loss scaling."""

from __future__ import annotations

import gc
import os
import random
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from pipeline.timing.recorder import read_process_memory
from pipeline.train.optimizer import LocalAdamW
from pipeline.train.ranks import Ranks
from pipeline.train.verdict import QueuedVerdict
from slurm_jobs.shared.accelerate_file import (
    AccelerateFile,
    Asker,
    find_problems,
    precision_of,
    understand,
)
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_parts import ScalerConfig
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.files import parse_ranges, ranges_text
from slurm_jobs.shared.machine import cpu_facts
from slurm_jobs.shared.records import TaskContext

# The file of `strategy: accelerate`, as a rank reads it.


def asked_precision(config: TrainConfig) -> str:
    """Return the config's precision; for `precision: auto` that of accelerate's file, if any.

    Raises:
        StageConfigError: the file does not exist.
    """
    if config.accelerate is None or config.precision != "auto":
        return config.precision
    file = config.accelerate.config
    values = _parse(file, _read(file))
    return (precision_of(values) if isinstance(values, dict) else None) or "auto"


def read_accelerate_file(
    config: TrainConfig, ranks: Ranks, *, num_nodes: int
) -> AccelerateFile | None:
    """Read and check the file, None if the config names none; a collective.

    Raises:
        StageConfigError: it does not exist, or a training cannot satisfy it.
        StageError: rank 0 read different content.
    """
    if config.accelerate is None:
        return None
    file = config.accelerate.config
    text = _read(file)
    if text != ranks.from_main(text):
        message = (
            f"{file}: rank {ranks.rank} reads other content than rank 0: the file was just "
            "changed, or a node has a stale copy; try again"
        )
        raise StageError(message)
    values = _parse(file, text)
    asker = Asker(
        num_ranks=ranks.num_ranks,
        num_nodes=num_nodes,
        device=config.device,
        precision=config.precision,
    )
    problems = find_problems(values, asker)
    if problems:
        message = f"{file}: {'; '.join(problems)}"
        raise StageConfigError(message)
    return understand(values)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        message = f"{file}: the file of accelerate cannot be read: {error.strerror or error}"
        raise StageConfigError(message) from error
    except UnicodeDecodeError as error:
        message = f"{file}: not a text file in UTF-8"
        raise StageConfigError(message) from error


def _parse(file: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{file}: not valid YAML ({error}); write it with `accelerate config`"
        raise StageConfigError(message) from error


# Device, precision and number of threads of a rank, without fallbacks.


_GENERATORS_WORD = 4
"""Separates these seeds from those of the order, of augmentation and of streams."""
_BF16_CAPABILITY = (8, 0)
"""Below it torch.cuda.is_bf16_supported() returns True, but the card emulates bf16."""
_FP16_CAPABILITY = (7, 0)
"""From this capability on, cards have tensor cores, with which fp16 is faster than fp32."""
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
    torch.utils.deterministic.fill_uninitialized_memory = False
    set_tf32(on=config.tf32)
    precision = choose_precision(asked_precision(config), capability_of(device))
    return RankDevice(device=device, precision=precision, num_compute_threads=num_threads)


def set_tf32(*, on: bool) -> None:
    """Set TF32 for matrix products and for convolutions, where PyTorch alone would use it."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def near_cores(device: torch.device) -> tuple[int, ...]:
    """Return the cores of a GPU's NUMA node; none for a CPU, or if unknown."""
    address = _pci_address(device)
    return () if address is None else cores_near(address)


def _pci_address(device: torch.device) -> str | None:
    """Return the PCI address of a GPU; None for a CPU, or from a build of torch without it."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    domain, bus, number = (getattr(properties, name, -1) for name in names)
    if min(domain, bus, number) < 0:
        return None
    return f"{domain:04x}:{bus:02x}:{number:02x}.0"


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


def choose_precision(setting: str, capability: tuple[int, int] | None) -> str:
    """Resolve `precision` for a GPU of this compute capability, or for a CPU (None).

    Raises:
        StageConfigError: bf16 on a GPU that only emulates it.
    """
    if setting == "auto":
        return native_precisions(capability)[-1]
    if setting == "bf16" and capability is not None and capability < _BF16_CAPABILITY:
        message = (
            "precision is bf16, but this GPU has compute capability "
            f"{capability[0]}.{capability[1]}, which only emulates it: set `precision: fp16`, or "
            "request a GPU of capability 8.0 or above (A100)"
        )
        raise StageConfigError(message)
    return setting


def read_device_memory(device: torch.device) -> tuple[float, int]:
    """Return peak bytes and allocator retries so far; the allocator's counters, no synchronisation.

    One query per step: `memory_stats` would flatten and sort some hundred counters in Python.
    """
    if device.type != "cuda":
        return read_process_memory()
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    return float(stats["allocated_bytes"]["all"]["peak"]), int(stats["num_alloc_retries"])


def give_back_memory(device: torch.device) -> None:
    """Free unreferenced device memory, including reference cycles of modules and hooks.

    GPU memory that PyTorch caches is returned to the driver, so that blocks of other sizes fit.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def capability_of(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; None for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


# Facts about a rank's device, read once; the preflight judges devices only by these.


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFacts:
    """A GPU or the node's CPUs, and this PyTorch build's support for it."""

    type: str
    """`cuda` or `cpu`."""
    name: str
    """Name from the driver (`Tesla V100-SXM2-32GB`); for CPUs from the kernel, or empty."""
    capability: tuple[int, int] | None
    """Compute capability; None for CPUs."""
    total_bytes: int | None
    """Memory of the card; None for CPUs, whose memory is the node's."""
    free_bytes: int | None
    """Free memory of the card."""
    arch_list: tuple[str, ...]
    """GPUs that this PyTorch has code for (`sm_70`, `compute_90`); empty without CUDA."""
    torch_version: str
    """With its build: `2.13.0+cu126`."""
    uuid: str | None = None
    """UUID of the card or MIG slice; None for CPUs, or from a build of torch without it."""
    pci_address: str | None = None
    """PCI address of the card, which its slices share; None like `uuid`."""

    def __str__(self) -> str:
        name = self.name or self.type
        if self.capability is None:
            return name
        return f"{name} (compute capability {self.capability[0]}.{self.capability[1]})"


def read_device(device: torch.device) -> DeviceFacts:
    """Query the driver, or the kernel; no kernel of PyTorch is run."""
    is_gpu = device.type == "cuda"
    free_bytes, total_bytes = torch.cuda.mem_get_info(device) if is_gpu else (None, None)
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None) if is_gpu else None
    return DeviceFacts(
        type=device.type,
        name=torch.cuda.get_device_name(device) if is_gpu else cpu_facts()["model"],
        capability=capability_of(device),
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        arch_list=tuple(torch.cuda.get_arch_list()),
        torch_version=str(torch.__version__),
        uuid=None if uuid is None else str(uuid),
        pci_address=_pci_address(device),
    )


# Check that this build of PyTorch has code for the card, and that the card supports the config.
#
# Without code for the card the first kernel fails ("no kernel image is available"), after
# staging, after reading the weights, and possibly after days in the queue. The rules are
# NVIDIA's: see "CUDA C++ Programming Guide", Compute Capability, Binary Compatibility and PTX
# Compatibility.


_ENTRY = re.compile(r"(sm|compute)_(\d+)([af]?)")


def card_problem(facts: DeviceFacts, config: TrainConfig) -> str | None:
    """Return why this card cannot compute what the config needs, with the remedy."""
    if no_code := code_problem(facts):
        return no_code
    if config.quantize is not None and facts.capability is not None and facts.capability < (6, 0):
        return (
            f"quantize is set, but {facts} is older than the 4-bit kernels, which need 6.0: "
            "remove quantize, or request a V100 or newer (resources.gpu)"
        )
    return None


def compile_warning(facts: DeviceFacts, config: TrainConfig) -> str | None:
    """Warn that Triton may not work on this card.

    Source: https://github.com/triton-lang/triton, Compatibility; a V100 failed:
    jwohlwend/boltz#315.
    """
    if config.compile is None or config.compile.backend != "inductor":
        return None
    if facts.capability is None or facts.capability >= (8, 0):
        return None
    return (
        f"compile.backend is inductor, but {facts} is older than the cards that Triton supports "
        "(compute capability 8.0): Triton 3.3 and later has failed on a V100. If the first step "
        "fails or is slow, remove `compile`"
    )


def code_problem(facts: DeviceFacts) -> str | None:
    """Return why this build has no code for the card, whatever the config, with the remedy."""
    if facts.capability is None or runs_on(facts.arch_list, facts.capability):
        return None
    # CUDA 12.8 and later have no code for older cards; PyTorch's builds for 12.6 still have.
    if facts.capability < (7, 5):
        remedy = (
            "install the build for CUDA 12.6 in the stage's Python, the only one that still has "
            "it, before torch 2.15: pip install 'torch<2.15' --index-url "
            "https://download.pytorch.org/whl/cu126"
        )
    else:
        remedy = (
            f"install a build of PyTorch that has sm_{facts.capability[0]}{facts.capability[1]} in "
            "the stage's Python (https://pytorch.org/get-started/locally)"
        )
    return (
        f"torch {facts.torch_version} has no code for {facts}, but for "
        f"{', '.join(facts.arch_list)}: {remedy}; or request another card (resources.gpu)"
    )


def runs_on(arch_list: Sequence[str], capability: tuple[int, int]) -> bool:
    """Check whether a build with code for `arch_list` runs on a card of that compute capability.

    `sm_XY` is machine code, for cards of the same major number and no smaller minor one.
    `compute_XY` is PTX, which the driver compiles for any newer card. The suffix `a` limits it
    to that card, `f` to its family. A list without such an entry (AMD's) is not judged.
    """
    known = [match.groups() for match in map(_ENTRY.fullmatch, arch_list) if match]
    for kind, number, suffix in known:
        made_for = divmod(int(number), 10)
        if suffix == "a":
            runs = made_for == capability
        elif kind == "compute" and not suffix:
            runs = made_for <= capability
        else:
            runs = made_for[0] == capability[0] and made_for[1] <= capability[1]
        if runs:
            return True
    return not known


# Loss scaling under fp16, whose small gradients would be zero; nothing under other precisions.
#
# torch's scaler decides on each rank whether gradients overflowed. If only one rank sees an
# overflow (under ddp: an error after the reduction), scales and weights would diverge. So here it
# only multiplies and divides: the verdict of all ranks decides whether a step is skipped.


class _Scaler(torch.amp.GradScaler):
    """Scaler that also divides gradients in host memory, once the scale is copied there."""

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """Like torch, which copies both to the host without waiting for them (2.13)."""
        gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
        if inv_scale.device.type != "cpu" and any(
            gradient is not None and gradient.device.type == "cpu" for gradient in gradients
        ):
            inv_scale, found_inf = inv_scale.cpu(), found_inf.cpu()  # SYNC: only with offloading
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)

    def update_by(self, is_bad: torch.Tensor) -> None:
        """Update the scale from the verdict of all ranks instead of this rank's; no SYNC."""
        for state in self._per_optimizer_states.values():
            state["found_inf_per_device"] = {is_bad.device: is_bad}
        self.update()


class Scaling:
    """Wraps `torch.amp.GradScaler`; a `Stateful` of torch.distributed.checkpoint."""

    def __init__(self, config: ScalerConfig, rank_device: RankDevice) -> None:
        self.is_on = rank_device.precision == "fp16"
        """True if occasional overflows of gradients are expected."""
        self.num_skips_in_a_row = 0
        self.num_skips = 0
        """Skips of the whole training."""
        self._scaler = _Scaler(
            rank_device.device.type,
            init_scale=config.init_scale,
            growth_interval=config.growth_interval,
            enabled=self.is_on,
        )

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward of the scaled loss: a float32 scalar."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients, once per step, before they are clipped."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, verdict: QueuedVerdict) -> None:
        """Update if the verdict is good; otherwise change nothing, and halve the scale.

        No SYNC if the optimizer skips on the device. After many updates the scale grows.
        """
        # Only torch's fused kernels take a value on the device; those of bitsandbytes do not, and
        # offloaded parameters are updated on the host.
        parameters = (each for group in optimizer.param_groups for each in group["params"])
        if isinstance(optimizer, LocalAdamW) and all(
            each.device == verdict.is_bad.device for each in parameters
        ):
            optimizer.found_inf = verdict.is_bad  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.found_inf  # type: ignore[attr-defined]
        elif verdict.read().is_finite:  # SYNC: before the update
            optimizer.step()
        if self.is_on:
            self._scaler.update_by(verdict.is_bad)

    def count(self, *, is_skipped: bool) -> None:
        """Count a step whose verdict the host has read."""
        self.num_skips_in_a_row = self.num_skips_in_a_row + 1 if is_skipped else 0
        self.num_skips += is_skipped

    @property
    def scale_on_device(self) -> torch.Tensor | None:
        """Factor of this step's loss; None if nothing is scaled."""
        return self._scaler._get_scale_async() if self.is_on else None  # noqa: SLF001

    @property
    def scale(self) -> float:
        """Factor of the next loss; SYNC."""
        return float(self._scaler.get_scale())

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: numbers, equal on all ranks."""
        if not self.is_on:
            return {}
        scaler_state = self._scaler.state_dict()
        return {
            "scale": float(scaler_state["scale"]),
            "growth_tracker": int(scaler_state["_growth_tracker"]),
            "num_skips_in_a_row": self.num_skips_in_a_row,
            "num_skips": self.num_skips,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; intervals and factors are those of the config."""
        now = self._scaler.state_dict()
        self._scaler.load_state_dict(
            {**now, "scale": state["scale"], "_growth_tracker": state["growth_tracker"]}
        )
        self.num_skips_in_a_row = state["num_skips_in_a_row"]
        self.num_skips = state["num_skips"]
