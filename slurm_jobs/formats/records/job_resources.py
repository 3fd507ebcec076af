"""Resources that one job, or one array task, requests from the scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


def lead_within(timeout_min: float, asked_s: int) -> int:
    """Return how many seconds before a time limit ranks get the stop signal: at most half of it."""
    return min(asked_s, int(timeout_min * 60 / 2))


_GPU_REQUEST = re.compile(
    r"(?:gres[/:])?gpu(?:[:=](?!\d+[kmg]?$)[^:=,]+)?(?:[:=](\d+)([kmg]?))?", re.IGNORECASE
)
_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
"""Suffixes of a count, from Slurm's src/common/gres.c."""
_SOCKETS = re.compile(r"\(S:[^()]*\)")
"""Socket list in Slurm's own output, which people copy."""


def gpus_of_options(slurm: Mapping[str, object], tasks_per_node: int) -> int:
    """Return the GPUs on each node that options of sbatch request under their own names.

    `gres: gpu:a100:4`, `tres-per-task: gres/gpu:1`, and `gpus-per-socket` with `sockets-per-node`.
    """
    options = {key.replace("_", "-"): value for key, value in slurm.items()}
    num_gpus = _num_gpus(options.get("gres"))
    num_gpus += tasks_per_node * _num_gpus(options.get("tres-per-task"))
    a_socket = options.get("gpus-per-socket")
    if a_socket:
        sockets = str(options.get("sockets-per-node", 1)).partition("-")[0]
        num_gpus += _num_gpus(f"gpu:{a_socket}") * (int(sockets) if sockets.isdecimal() else 1)
    return num_gpus


def _num_gpus(text: object) -> int:
    """Return the GPUs of `gpu`, `gpu:4`, `gpu:a100:4`, `gres/gpu=2`, alone or in a list."""
    parts = _SOCKETS.sub("", str(text or "")).split(",")
    matches = [_GPU_REQUEST.fullmatch(part.strip()) for part in parts]
    return sum(
        int(match[1] or 1) * _SUFFIXES[(match[2] or "").lower()] for match in matches if match
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResources:
    """Resources of one job or array task."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    gpu: tuple[str, ...]
    mem_gb: float | None
    timeout_min: float
    signal_lead_s: int
    slurm: Mapping[str, str | bool | int | float]
    """Options of sbatch from the profile and the stage; the stage's win."""
    gpu_kept: str = ""
    """GPU type on which the work was begun, of several: only it is requested; empty for any."""

    @property
    def gpu_choice(self) -> tuple[str, ...]:
        """Return GPU types that the job may get; empty for all types."""
        return (self.gpu_kept,) if self.gpu_kept else self.gpu

    @property
    def num_gpus(self) -> int:
        """Return the GPUs on each node, requested by any key."""
        return self.gpus_per_node or gpus_of_options(self.slurm, self.tasks_per_node)

    @property
    def total_gpus(self) -> int:
        """Return the GPUs on all nodes."""
        return self.nodes * self.num_gpus

    @property
    def lead_s(self) -> int:
        """Return the seconds before the time limit at which ranks get the stop signal."""
        return lead_within(self.timeout_min, self.signal_lead_s)

    @property
    def num_ranks(self) -> int:
        """Return the number of ranks over all nodes."""
        return self.nodes * self.tasks_per_node


def near_gpus(resources: JobResources) -> list[str]:
    """Return the options of srun that give the first ranks the cores of the first socket.

    Rank n of a node uses its GPU n, and on most nodes the first GPUs belong to the first socket.
    Slurm's default distributes ranks to sockets in turn. An option of the spec or the profile has
    priority.
    """
    options = {key.replace("_", "-") for key in resources.slurm}
    if not resources.num_gpus or options & {"distribution", "m"}:
        return []
    return ["--distribution=block:block"]
