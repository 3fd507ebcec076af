"""Precision of a training by the compute capability of the card."""

from __future__ import annotations

import torch

from slurm_jobs.base.errors import StageConfigError

_BF16_CAPABILITY = (8, 0)
"""Below it torch.cuda.is_bf16_supported() returns True, but the card emulates bf16."""


_FP16_CAPABILITY = (7, 0)
"""From this capability on, cards have tensor cores, with which fp16 is faster than fp32."""


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


def capability_of(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; None for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None
