"""Text of a failure: the rank that failed first, its node, and the last line of its log."""

from __future__ import annotations


def rank_place(rank: int | str, node: str) -> str:
    """Return the place that the reason of a failure names: `rank 0 on n1`."""
    return f"rank {rank} on {node}"


def with_last_line(reason: str, last_line: str | None) -> str:
    """Return the reason of a failure, followed by the last line of the log if it is known."""
    return reason if last_line is None else f"{reason}; its log ends with: {last_line}"
