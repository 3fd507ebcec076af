"""Results of simulated tunings."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from slurm_jobs.cli.reports.tuning_screen import render
from slurm_jobs.tuning.summary import result_of
from tests.slurm_jobs.tuning.simulated import facts, simulate_tuning


def flat(_changes: dict[str, Any]) -> float:
    return 1000.0


def threads_help(changes: dict[str, Any]) -> float:
    return 400.0 * min(8, changes.get("num_loader_threads", 2))


def result(speed: Any, budget_min: float = 240.0, **values: Any) -> dict[str, Any]:
    given = facts(budget_min)
    tuning, trials = simulate_tuning(given, speed, **values)
    return result_of(given, tuning, trials, stage="train")


def shown(values: dict[str, Any]) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(render(values))
    return console.file.getvalue()
