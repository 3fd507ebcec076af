"""Colours of each status in the views of a run."""

from __future__ import annotations

from slurm_jobs.status.slice_status import Status

STYLES: dict[Status, str] = {
    "completed": "green",
    "running": "cyan",
    "waiting": "dim",
    "failed": "bold red",
    "cancelled": "yellow",
    "stranded": "yellow",
    "unknown": "magenta",
}
CELL_STYLES: dict[Status, str] = {
    "failed": "bold white on red",
    "unknown": "bold white on magenta",
    "stranded": "black on yellow",
    "cancelled": "black on yellow",
    "running": "black on cyan",
    "waiting": "dim",
    "completed": "black on green",
}
