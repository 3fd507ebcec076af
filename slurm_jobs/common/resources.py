"""What one job, or one array task, asks of the scheduler. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def lead_within(timeout_min: float, asked_s: int) -> int:
    """Seconds before a time limit at which ranks are told, of `asked_s`: never over half of it."""
    return min(asked_s, int(timeout_min * 60 / 2))


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
    def lead_s(self) -> int:
        """Seconds before the time limit at which ranks are told."""
        return lead_within(self.timeout_min, self.signal_lead_s)

    @property
    def num_ranks(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.tasks_per_node
