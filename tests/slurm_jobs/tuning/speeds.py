"""Speeds of simulated trials, by their settings."""

from typing import Any


def flat(_changes: dict[str, Any]) -> float:
    return 1000.0


def threads_help(changes: dict[str, Any]) -> float:
    """Up to 8 threads."""
    return 400.0 * min(8, changes.get("num_loader_threads", 2))
