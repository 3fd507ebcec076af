"""MIG slices of NVIDIA cards, by the names of their types in Slurm. PURE.

Slurm's AutoDetect names a slice after its card and NVIDIA's profile (`a100_3g.20gb`,
`nvidia_h100_80gb_hbm3_1g.10gb`), and sites that choose names themselves use the profile, too
(slurm.schedmd.com/gres.html, "MIG Management"). A profile is the number of compute slices and the
memory: `3g.20gb`, `1c.3g.20gb`, `1g.10gb+me` (NVIDIA, "MIG User Guide", MIG Device Names).

One training gets at most one slice of a node: a process sees only the first of several slices, and
NCCL takes only one rank for each card (github.com/NVIDIA/nccl/issues/1716).
"""

from __future__ import annotations

import re

_PROFILE = re.compile(r"(?<![a-z0-9])\d+g\.(\d+)gb", re.IGNORECASE)


def is_slice(gpu_type: str) -> bool:
    """Check whether a type of GPU is a slice of a card."""
    return slice_gb(gpu_type) is not None


def slice_gb(gpu_type: str) -> int | None:
    """Return the memory of a slice in GB; None for a whole card."""
    match = _PROFILE.search(gpu_type)
    return None if match is None else int(match[1])
