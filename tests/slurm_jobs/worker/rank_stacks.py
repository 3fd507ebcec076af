"""Stacks of a rank, as its process writes them."""

from __future__ import annotations

from slurm_jobs.worker.stacks import RankStacks, parse_stacks

SITE = "/venv/lib/python3.11/site-packages"
CODE = "/runs/r/code/0a1b/lib.zip"


def stacks(main: tuple[str, ...], *others: tuple[str, ...]) -> RankStacks:
    """The answer of a rank whose threads are there."""
    parts = [f"Thread 0x00007f00000000{i:02x} (most recent call first):" for i in range(9)]
    body = [
        line
        for heading, frames in zip(parts[1:], others, strict=False)
        for line in (heading, *frames, "")
    ]
    lines = [
        "main thread 0x00007f1e34863b80",
        "",
        "--- stacks of process 971 at 2026-11-26 19:38:10, state S (sleeping)",
        *body,
        "Current thread 0x00007f1e34863b80 (most recent call first):",
        *main,
        "",
    ]
    return parse_stacks("\n".join(lines))
