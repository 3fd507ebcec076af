"""Facts about a rank's device, read once; the preflight judges devices only by these."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline.train.device.numa_cores import pci_address_of
from pipeline.train.device.precision import capability_of
from slurm_jobs.base.machine import cpu_facts


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
        pci_address=pci_address_of(device),
    )
