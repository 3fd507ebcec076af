"""Load of nodes in words, for terminal and page. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.values.load_model import Level, NodeLoad


def least_busy(load: NodeLoad) -> float:
    """Return the sort key of nodes: those with the most idle devices come first."""
    busy = load.gpu_busy or load.cpu_busy
    return busy.mean if busy is not None else 1.0


def load_rows(loads: Sequence[NodeLoad]) -> list[dict[str, str]]:
    """Return a row per node, by column, without columns that no node has."""
    rows = [_cells(load) for load in loads]
    known = {name for row in rows for name, cell in row.items() if cell != units.NOT_KNOWN}
    return [{name: cell for name, cell in row.items() if name in known} for row in rows]


def load_line(load: NodeLoad) -> str:
    """Return the load in one line, without unknown values."""
    (row,) = load_rows([load])
    listed = ", ".join(f"{name} {cell}" for name, cell in row.items() if name != "node")
    return f"{load.node}: {listed}"


def _cells(load: NodeLoad) -> dict[str, str]:
    gpu, cores = load.gpu_busy, load.job_cpu_cores
    memory = units.NOT_KNOWN
    if load.gpu_memory_peak_bytes is not None and load.gpu_memory_bytes:
        share = load.gpu_memory_peak_bytes / load.gpu_memory_bytes
        memory = f"{units.num_bytes(load.gpu_memory_peak_bytes)} ({units.percent(share)})"
    return {
        "node": load.node,
        "GPU busy": _percent(gpu),
        "p5 to p95": (
            f"{units.percent(gpu.p5)} to {units.percent(gpu.p95)}" if gpu else units.NOT_KNOWN
        ),
        "GPU memory": memory,
        "CPU busy": _percent(load.cpu_busy),
        "job's cores": f"{cores.mean:.1f} of {load.num_cores}" if cores else units.NOT_KNOWN,
        "waits for disks": _percent(load.cpu_iowait),
        "disk read": _rate(load.disk_read),
        "received": _rate(load.network_receive),
    }


def _percent(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else units.percent(level.mean)


def _rate(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else f"{units.num_bytes(level.mean)}/s"
