"""Memory of a device: the peak so far, and the return of what is unused."""

from __future__ import annotations

import gc

import torch

from pipeline.timing.recorder import read_process_memory


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
