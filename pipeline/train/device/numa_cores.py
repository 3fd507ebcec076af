"""Cores of a GPU's NUMA node, and the warning for a rank that runs on none of them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import torch

from slurm_jobs.base.index_ranges import parse_ranges, ranges_text


def near_cores(device: torch.device) -> tuple[int, ...]:
    """Return the cores of a GPU's NUMA node; none for a CPU, or if unknown."""
    address = pci_address_of(device)
    return () if address is None else cores_near(address)


def pci_address_of(device: torch.device) -> str | None:
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
