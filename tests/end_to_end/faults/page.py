"""The table of docs/explanation/reliability.md, written by `make test-faults`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEAD = ("| fault | times injected | outcome |", "| --- | ---: | --- |")
_rounds: dict[str, list[tuple[int, int | None]]] = {}
"""By fault how often it was injected, and how many resumes it took, in each round so far."""


def note(
    fault: str | None, num_injected: int, outcome: str, *, num_resumes: int | None = None
) -> None:
    """Put a row into the page that SLURM_JOBS_RELIABILITY_PAGE names; nothing without it.

    The row tells of all rounds of this process.
    """
    assert fault is not None
    assert num_injected > 0, f"nothing was injected: {fault}"
    given = os.environ.get("SLURM_JOBS_RELIABILITY_PAGE")
    if not given:
        return
    what = fault.splitlines()[0].removesuffix(".")
    rounds = _rounds.setdefault(what, [])
    rounds.append((num_injected, num_resumes))
    row = f"| {what} | {sum(times for times, _ in rounds)} | {outcome}{_resumes(rounds)} |"
    page = Path(given)
    with _one_at_a_time(page):
        page.write_text(_with_row(page.read_text(), what, row))


def _with_row(text: str, what: str, row: str) -> str:
    """The page with the row in the place of this fault's former one, or at the end."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    places = [place for place, line in enumerate(rows) if line.startswith(f"| {what} |")]
    if places:
        rows[places[0]] = row
    else:
        rows.append(row)
    return before + "\n".join([BEGIN, *HEAD, *rows, END]) + after


@contextmanager
def _one_at_a_time(page: Path) -> Iterator[None]:
    """Several processes write rows."""
    with page.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _resumes(rounds: list[tuple[int, int | None]]) -> str:
    """`; resumes: 0 to 2`, the fewest and the most of a round; empty where they do not count."""
    found = sorted({number for _, number in rounds if number is not None})
    if not found:
        return ""
    return f"; resumes: {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")
