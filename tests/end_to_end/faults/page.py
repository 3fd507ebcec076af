"""The table of docs/reliability.md, written by `make test-faults`."""

from __future__ import annotations

import os
from pathlib import Path

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEAD = ("| fault | times injected | outcome |", "| --- | ---: | --- |")


def note(fault: str | None, num_injected: int, outcome: str) -> None:
    """Put a row into the page that SLURM_JOBS_RELIABILITY_PAGE names; nothing without it."""
    assert fault is not None
    assert num_injected > 0, f"nothing was injected: {fault}"
    given = os.environ.get("SLURM_JOBS_RELIABILITY_PAGE")
    if not given:
        return
    page = Path(given)
    before, _, rest = page.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    what = fault.splitlines()[0].removesuffix(".")
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    rows = [line for line in rows if not line.startswith(f"| {what} |")]
    rows.append(f"| {what} | {num_injected} | {outcome} |")
    page.write_text(before + "\n".join([BEGIN, *HEAD, *rows, END]) + after)
