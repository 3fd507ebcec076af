"""Devices as the driver, and the kernel, tell of them."""

from __future__ import annotations

import dataclasses

from pipeline.train.device.device_facts import DeviceFacts

CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
"""torch.cuda.get_arch_list() of PyTorch's builds for CUDA 12.6."""
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


def card(
    name: str,
    capability: tuple[int, int],
    *,
    total_gb: float,
    free_gb: float | None = None,
    arch_list: tuple[str, ...] = CU126,
    build: str = "cu126",
) -> DeviceFacts:
    return DeviceFacts(
        type="cuda",
        name=name,
        capability=capability,
        total_bytes=int(total_gb * 1e9),
        free_bytes=int((total_gb if free_gb is None else free_gb) * 1e9),
        arch_list=arch_list,
        torch_version=f"2.13.0+{build}",
    )


V100 = card("Tesla V100-SXM2-16GB", (7, 0), total_gb=16.9)
V100_32 = card("Tesla V100-SXM2-32GB", (7, 0), total_gb=34.1)
A100 = card("NVIDIA A100-SXM4-40GB", (8, 0), total_gb=42.3)
H100 = card("NVIDIA H100 80GB HBM3", (9, 0), total_gb=85.0)
CPU = DeviceFacts(
    type="cpu",
    name="Intel Xeon",
    capability=None,
    total_bytes=None,
    free_bytes=None,
    arch_list=(),
    torch_version="2.13.0+cpu",
)


def gpu(uuid: str | None, pci_address: str | None = None) -> DeviceFacts:
    return dataclasses.replace(A100, uuid=uuid, pci_address=pci_address)
