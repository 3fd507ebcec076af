"""Calls of scontrol from a job, with the reason if they fail."""

from __future__ import annotations

import os
import subprocess

from slurm_jobs.schedulers.slurm_environment import query_environment

COMMAND_TIMEOUT_S = 30


def output_of(command: list[str]) -> str | None:
    """Return the standard output; None if the command is missing, failed or did not answer."""
    try:
        result = _run(command)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def told(command: list[str]) -> str | None:
    """Run a command; return None, or the reason why it failed."""
    try:
        result = _run(command)
    except FileNotFoundError:
        return f"{command[0]} is missing on this node; `slurm-jobs resume` runs it again"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not answer within {COMMAND_TIMEOUT_S} s"
    if result.returncode != 0:
        return f"{' '.join(command[:2])} failed: {result.stderr.strip()}"
    return None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        env=query_environment(os.environ),
    )
