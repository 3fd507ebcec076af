"""Live view of `watch` and `run` on a terminal: stages, grids, the last failure. Layout only.

It fits the screen for any number of slices: grids are condensed, and the least important parts
are omitted first (grids of arrays with one status, then lines of the log's tail).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from slurm_jobs.cli.run_view.problems import Failure, source_lines
from slurm_jobs.cli.run_view.run_snapshot import RunView
from slurm_jobs.cli.run_view.slice_grid import grid_lines, legend, make_grid

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

    from slurm_jobs.status.run_status import StageStatus
from slurm_jobs.cli.run_view.stages_table import stages_table, title_text
from slurm_jobs.cli.run_view.status_styles import STYLES

MAX_GRID_ROWS = 20
"""Rows for one array; more do not help to find failures."""
MIN_GRID_LINES = 3
"""A heading, a row, a legend."""
MIN_FAILURE_LINES = 5
"""Lines for the failure, the log's name, and three lines of its end."""
MAX_WRAPPED_LINES = 3
"""Lines of a reason that is longer than a line."""
MIN_BAR, MAX_BAR = 10, 40
"""Characters of a bar."""
_PLAIN_COUNTS = (["waiting"], ["completed"], ["stranded"])
FOOTER = "Ctrl-C stops watching; the run continues"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Escape sequences, and other characters that would move the cursor."""


def live_view(view: RunView, console: Console, *, now_unix_s: float, is_over: bool) -> Group:
    """Return the whole view, no wider and no higher than the console."""
    from rich.console import Group

    width, height = console.size
    title = title_text(view, now_unix_s)
    head = Group(title, stages_table(view, now_unix_s=now_unix_s, width=width))
    sources = [
        line
        for text in source_lines(view.status)
        for line in _wrapped(text, "yellow", console)[:MAX_WRAPPED_LINES]
    ]
    num_head_lines = len(console.render_lines(head, pad=False))
    room = max(0, height - num_head_lines - len(sources) - 2)  # for footer and cursor
    bars = _bar_lines(view.shares, width=width)[: room // MIN_GRID_LINES]
    room -= len(bars)
    arrays = [  # those whose slices are neither all waiting nor all complete
        stage
        for stage in view.status.stages
        if stage.stage.num_slices > 1 and [*stage.counts] not in _PLAIN_COUNTS
    ]
    for_failure = min(room, max(MIN_FAILURE_LINES, room - MIN_GRID_LINES * len(arrays)))
    failure = _failure_lines(view.failure, console, max_lines=for_failure)
    grids = _array_lines(arrays, width=width, room=room - len(failure))
    footer = [] if is_over else [_line(FOOTER, "dim")]
    return Group(head, *bars, *sources, *grids, *failure, *footer)


def _bar_lines(shares: Mapping[str, float], *, width: int) -> list[Text]:
    """Return a progress bar for each stage, distinguishable without colour."""
    longest = max(map(len, shares), default=0)
    length = min(MAX_BAR, width - longest - len(" [] 100 %"))
    if length < MIN_BAR:
        return []
    lines = []
    for name, share in shares.items():
        done = int(length * min(1.0, share))
        bar = f"{'#' * done}{'.' * (length - done)}"
        lines.append(_line(f"{name:{longest}} [{bar}] {int(100 * share):3d} %", "cyan"))
    return lines


def _line(text: str, style: str = "") -> Text:
    """Return one line of the screen, cut if it is too long."""
    from rich.text import Text

    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _wrapped(text: str, style: str, console: Console) -> list[Text]:
    """Wrap a text into lines of the screen."""
    from rich.text import Text

    return list(Text(printable(text), style=style).wrap(console, console.width))


def printable(line: str) -> str:
    """Remove from a log line what would move the cursor; of a progress bar keep the last state."""
    states = [state for state in line.split("\r") if state.strip()]
    return _CONTROLS.sub("", states[-1] if states else "").expandtabs(4)


def _array_lines(arrays: list[StageStatus], *, width: int, room: int) -> list[Text]:
    """Return a heading, the grid and its legend for each array, as many as fit."""
    lines: list[Text] = []
    for number, stage in enumerate(arrays):
        share = (room - len(lines)) // (len(arrays) - number)
        if share < MIN_GRID_LINES:
            continue
        max_rows = min(MAX_GRID_ROWS, share - MIN_GRID_LINES + 1)
        statuses = [part.status for part in stage.slices]
        grid = make_grid(statuses, width=width, max_rows=max_rows)
        heading = f"{stage.stage.name}: {stage.stage.num_slices} slices"
        lines.append(_line(heading, STYLES[stage.status]))
        lines += grid_lines(statuses, width=width, max_rows=max_rows)
        lines.append(legend(statuses, slices_per_cell=grid.slices_per_cell))
    return lines


def _failure_lines(failure: Failure | None, console: Console, *, max_lines: int) -> list[Text]:
    """Return the last failure: what and why, which log, and its end."""
    if failure is None:
        return []
    lines = _wrapped(f"last failure: {failure.line}", STYLES["failed"], console)
    lines = lines[:MAX_WRAPPED_LINES]
    if failure.log is not None:
        lines.append(_line(f"{failure.log.name} ends with:", "dim"))
        num_shown = max(0, max_lines - len(lines))
        lines += [
            _line(f"  {text}") for text in failure.tail[max(0, len(failure.tail) - num_shown) :]
        ]
    return lines[:max_lines]
