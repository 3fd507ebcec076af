"""What one job, or one array task, asks of the scheduler. PURE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


def lead_within(timeout_min: float, asked_s: int) -> int:
    """Seconds before a time limit at which ranks are told, of `asked_s`: never over half of it."""
    return min(asked_s, int(timeout_min * 60 / 2))


_GPU_REQUEST = re.compile(
    r"(?:gres[/:])?gpu(?:[:=](?!\d+[kmg]?$)[^:=,]+)?(?:[:=](\d+)([kmg]?))?", re.IGNORECASE
)
_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
"""After a count; from Slurm's src/common/gres.c."""
_SOCKETS = re.compile(r"\(S:[^)]*\)")
"""In Slurm's own output, which people copy."""


def gpus_of_options(slurm: Mapping[str, object], tasks_per_node: int) -> int:
    """Return the GPUs on each node that options of sbatch ask for under their own names.

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
    """What one job or array task asks for."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    gpu: tuple[str, ...]
    mem_gb: float | None
    timeout_min: float
    signal_lead_s: int
    slurm: Mapping[str, str | bool | int | float]
    """Profile's and stage's options of sbatch, the stage's winning."""
    gpu_kept: str = ""
    """That of several types which the work was begun on: asked for alone; empty for any."""

    @property
    def gpu_choice(self) -> tuple[str, ...]:
        """Types of GPU that the job may get; empty for any that there is."""
        return (self.gpu_kept,) if self.gpu_kept else self.gpu

    @property
    def num_gpus(self) -> int:
        """GPUs on each node, by whatever key they are asked for."""
        return self.gpus_per_node or gpus_of_options(self.slurm, self.tasks_per_node)

    @property
    def lead_s(self) -> int:
        """Seconds before the time limit at which ranks are told."""
        return lead_within(self.timeout_min, self.signal_lead_s)

    @property
    def num_ranks(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.tasks_per_node


def near_gpus(resources: JobResources) -> list[str]:
    """Return the options of srun that give the first ranks the cores of the first socket.

    Rank n of a node uses its GPU n, and on most nodes the first GPUs are at the first socket.
    Slurm's default deals ranks to sockets in turn. An option of the spec or the profile counts.
    """
    options = {key.replace("_", "-") for key in resources.slurm}
    if not resources.num_gpus or options & {"distribution", "m"}:
        return []
    return ["--distribution=block:block"]
