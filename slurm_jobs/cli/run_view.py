"""Views of a run for a terminal: grid of slices, table of stages, live view, lines of changes."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.causes import reason_of
from slurm_jobs.cli.options import age_text, clock_text, command_text, duration_text, shown_path
from slurm_jobs.cli.problems import (
    NO_NEW_FAILURES,
    FailedAttempt,
    Failure,
    NewFailures,
    completed_notes,
    last_failure,
    new_failures,
    place_notes,
    source_lines,
)
from slurm_jobs.run.observe import in_doubt, status_of, views_until_over
from slurm_jobs.run_folder.notes import read_note
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.shared.files import ranges_text, read_json
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import SliceStatus, Status
from slurm_jobs.worker.rank import exit_path

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.status.run_status import StageStatus


# Progress of an array as a grid of cells, lettered and coloured by status.
#
# If an array has more slices than the screen has room, a cell represents several, and shows the
# worst of them: a single failure among ten thousand slices is visible.


LETTERS: dict[Status, str] = {
    "failed": "F",
    "unknown": "?",
    "stranded": "S",
    "cancelled": "X",
    "running": "R",
    "waiting": ".",
    "completed": "C",
}
"""Worst first: a cell shows the first status that one of its slices has."""

_CELL_STYLES: dict[Status, str] = {
    "failed": "bold white on red",
    "unknown": "bold white on magenta",
    "stranded": "black on yellow",
    "cancelled": "black on yellow",
    "running": "black on cyan",
    "waiting": "dim",
    "completed": "black on green",
}
_RANK = {status: rank for rank, status in enumerate(LETTERS)}
GROUP = 10
"""Cells between two gaps, so that a cell's number can be counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Cells in rows."""

    rows: tuple[tuple[Status, ...], ...]
    slices_per_cell: int

    @property
    def first_slices(self) -> list[int]:
        """Number of the first slice of each row."""
        before = [0]
        for row in self.rows[:-1]:
            before.append(before[-1] + len(row) * self.slices_per_cell)
        return before


def make_grid(statuses: Sequence[Status], *, width: int, max_rows: int) -> Grid:
    """Arrange the slices of a stage, one or more, in cells in slice order.

    `width` is in characters, with the slice number that a row begins with; `max_rows` is 1 or more.
    """
    num_columns = GROUP * max(1, (width - len(str(len(statuses) - 1))) // (GROUP + 1))
    round_numbers = (factor * 10**power for power in count() for factor in (1, 2, 5))
    per_cell = next(n for n in round_numbers if -(-len(statuses) // n) <= num_columns * max_rows)
    cells = [min(chunk, key=_RANK.__getitem__) for chunk in _chunks(statuses, per_cell)]
    return Grid(rows=tuple(map(tuple, _chunks(cells, num_columns))), slices_per_cell=per_cell)


def _chunks(items: Sequence[Status], length: int) -> list[Sequence[Status]]:
    return [items[start : start + length] for start in range(0, len(items), length)]


def grid_lines(statuses: Sequence[Status], *, width: int, max_rows: int) -> list[Text]:
    """Return the grid as lines of text, each with the number of its first slice."""
    from rich.text import Text

    grid = make_grid(statuses, width=width, max_rows=max_rows)
    lines = []
    for first, row in zip(grid.first_slices, grid.rows, strict=True):
        line = Text(no_wrap=True)
        line.append(f"{first:>{len(str(len(statuses) - 1))}}", style="dim")
        for number, status in enumerate(row):
            line.append(" " if number % GROUP == 0 else "")
            line.append(LETTERS[status], style=_CELL_STYLES[status])
        lines.append(line)
    return lines


def legend(statuses: Sequence[Status], *, slices_per_cell: int) -> Text:
    """Return the meaning of the letters in a grid, and the slices per cell."""
    from rich.text import Text

    present = set(statuses)
    line = Text(no_wrap=True, overflow="ellipsis")
    for status, letter in LETTERS.items():
        if status in present:
            line.append(letter, style=_CELL_STYLES[status])
            line.append(f" {status}  ", style="dim")
    if slices_per_cell > 1:
        line.append(f"a cell is {slices_per_cell} slices, the worst shows", style="dim")
    return line


# Snapshot of a run: everything that `status` and `watch` show, read at one moment.


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """Snapshot of a run."""

    run_id: str
    scheduler: str
    created_unix_s: float
    status: RunStatus
    progress: Mapping[str, str]
    """Progress of the single task of a running stage, by stage."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Progress as a number from 0 to 1, if the task reports it."""
    failure: Failure | None = None
    """Last failure, if it was requested."""
    new_failures: NewFailures = NO_NEW_FAILURES


def read_view(
    run_dir: Path,
    *,
    fresh: bool = False,
    with_failure: bool = False,
    reported: Collection[FailedAttempt] | None = None,
) -> RunView:
    """Read a run and query its scheduler.

    `with_failure`: find the last failure, with the end of its log. `reported`: find the failures
    that are not among these.
    """
    status = status_of(run_dir, fresh=fresh)
    meta = read_meta(RunPaths(run_dir))
    progress, shares = {}, {}
    for stage in status.stages:
        if stage.status == "running" and stage.stage.num_slices == 1:
            name = stage.stage.name
            progress[name], share = task_progress(run_dir, name, stage.slices[0])
            if share is not None:
                shares[name] = share
    failures = NO_NEW_FAILURES
    if reported is not None:
        failures = new_failures(run_dir, status, reported)
    return RunView(
        run_id=meta.run_id,
        scheduler=meta.scheduler,
        created_unix_s=meta.created_unix_s,
        status=status,
        progress=progress,
        shares=shares,
        failure=last_failure(run_dir, status) if with_failure else None,
        new_failures=failures,
    )


def task_progress(run_dir: Path, stage: str, part: SliceStatus) -> tuple[str, float | None]:
    """Return the progress that a running task reported: in words, and as a share if known.

    What it is doing is left out once its first rank has ended: the file still has the last.
    """
    task_dir = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt)
    attempt = f"attempt {part.attempt}: " if part.attempt > 1 else ""
    try:
        values: dict[str, Any] = read_json(task_dir / "progress.json")
    except FileNotFoundError:
        return attempt.removesuffix(": "), None
    share = f"{values['done']}/{values['total']} {values['unit']}" if values["unit"] else ""
    text = f"{share} {values['detail']}".strip()
    activity = values.get("activity")  # older versions write none
    if activity is not None and not exit_path(task_dir, 0).exists():
        text = ", ".join(filter(None, [activity, share]))
    text = f"{attempt}{text}".strip().removesuffix(":")
    return text, values["done"] / values["total"] if values["total"] else None


# A run's stages as a table. Layout only: `read_view` has read everything.


STYLES: dict[Status, str] = {
    "completed": "green",
    "running": "cyan",
    "waiting": "dim",
    "failed": "bold red",
    "cancelled": "yellow",
    "stranded": "yellow",
    "unknown": "magenta",
}
WIDE_ENOUGH = 80
"""Below this many characters the least helpful columns are omitted."""


def title_text(view: RunView, now_unix_s: float) -> Text:
    """Return the run, its status, and the age of the status."""
    from rich.text import Text

    status = view.status
    asked_s = status.asked_unix_s
    return Text.assemble(
        (view.run_id, "bold"),
        f" on {view.scheduler}, submitted {age_text(view.created_unix_s, now_unix_s)}: ",
        (status.status, STYLES[status.status]),
        f" (asked {age_text(asked_s, now_unix_s)})" if asked_s is not None else "",
    )


def stages_table(view: RunView, *, now_unix_s: float, width: int) -> Table:
    """Return a table with one line per stage."""
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= WIDE_ENOUGH
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ["stage", "status", "tasks", *(["job", "source"] if is_wide else []), "detail"]
    for column in columns:
        table.add_column(column, overflow="fold")
    for stage in view.status.stages:
        ids = dict.fromkeys((part.job_id or "").partition("_")[0] for part in stage.slices)
        jobs = " ".join(job_id for job_id in ids if job_id) or "-"
        sources, asked = " + ".join(stage.sources), view.status.query_time_of(stage.sources)
        if asked is not None:  # `squeue, 4 s ago`; `record`
            sources += f", {age_text(asked, now_unix_s)}"
        table.add_row(
            stage.stage.name,
            Text(stage.status, style=STYLES[stage.status]),
            tasks_text(stage),
            *([jobs, sources] if is_wide else []),
            Text(_detail_text(view, stage, now_unix_s)),
        )
    return table


def tasks_text(stage: StageStatus) -> str:
    """Return `3/4, 1 failed`."""
    counts = stage.counts
    total = stage.stage.num_slices
    done = f"{counts.get('completed', 0)}/{total}"
    others = [f"{counts[word]} {word}" for word in STYLES if word != "completed" and counts[word]]
    return ", ".join([done, *others]) if total > 1 else done


def _detail_text(view: RunView, stage: StageStatus, now_unix_s: float) -> str:
    """Return the progress of a running task, or why a stage waits, with its expected start."""
    if stage.status not in {"running", "waiting", "stranded"}:
        return ""
    is_running = stage.status == "running"
    progress = view.progress.get(stage.stage.name)
    if is_running and progress:
        return progress
    texts = [] if is_running else [reason_to_wait(stage)]
    starts = [
        part.start_unix_s
        for part in stage.slices
        if part.status == "waiting" and (part.start_unix_s or 0) > now_unix_s
    ]
    if first := min(filter(None, starts), default=None):  # Slurm's estimate
        clock, in_text = clock_text(first, now_unix_s), duration_text(first - now_unix_s)
        next_text = "next expected" if is_running else "expected"
        texts.append(f"{next_text} to start {clock} (in {in_text})")
    return "; ".join(filter(None, texts))


def reason_to_wait(stage: StageStatus) -> str:
    """Return why a stage waits, or can never start: its reason, or that of its first such slice."""
    waits = [part for part in stage.slices if part.status == stage.status]
    waits.sort(key=lambda part: not part.wait)
    return stage.reason or (waits or stage.slices)[0].reason


def exit_code(status: RunStatus) -> int:
    """Return 0 for an active or complete run, 1 for a failed one, 3 if it is unknown."""
    if status.status == "unknown":
        return 3
    return 1 if status.status in {"failed", "cancelled", "stranded"} else 0


def status_values(run_dir: Path, status: RunStatus, now_unix_s: float) -> dict[str, Any]:
    """Return a status as JSON values; ages in seconds, None for what was read from files."""
    notes = completed_notes(run_dir, status) | place_notes(run_dir, status, "running")
    in_cancelled = place_notes(run_dir, status, "cancelled")

    def age_s(sources: tuple[str, ...]) -> float | None:
        asked = status.query_time_of(sources)
        return None if asked is None else round(max(0.0, now_unix_s - asked), 1)

    def slice_values(stage: StageStatus, part: SliceStatus) -> dict[str, Any]:
        values = {each.name: getattr(part, each.name) for each in fields(part)}
        del values["job"]
        values["job_id"] = part.job_id
        if part.status == "failed":
            values["reason"] = reason_of(run_dir, stage, part)
        else:
            where = stage.stage.name, part.slice_index
            values["reason"] = notes.get(where, part.reason)
            if where in in_cancelled:
                values["reason"] += f"; {in_cancelled[where]}"
        return {**values, "age_s": age_s((part.source,))}

    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "note": read_note(RunPaths(run_dir)),
        "problems": list(status.problems),
        "notes": list(status.notes),
        "asked_unix_s": status.asked_unix_s,
        "stages": [
            {
                "name": stage.stage.name,
                "run": stage.stage.run,
                "status": stage.status,
                "sources": list(stage.sources),
                "age_s": age_s(stage.sources),
                "reason": stage.reason,
                "counts": dict(stage.counts),
                "slices_by_status": {
                    word: ranges_text(s.slice_index for s in stage.slices if s.status == word)
                    for word in stage.counts
                },
                "slices": [slice_values(stage, part) for part in stage.slices],
            }
            for stage in status.stages
        ],
    }


# Live view of `watch` and `run` on a terminal: stages, grids, the last failure. Layout only.
#
# It fits the screen for any number of slices: grids are condensed, and the least important parts
# are omitted first (grids of arrays with one status, then lines of the log's tail).


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


# Watch a run until it ends: a live view on a terminal, lines of changes elsewhere.
#
# It only reads: an interrupt ends `watch`, never the run.


INTERRUPTED_EXIT_CODE = 130
PROGRESS_INTERVAL_S = 30.0
"""Interval between lines that only report progress."""


def watch(
    run_dir: Path, *, quiet: bool, prints_failures: bool = True
) -> tuple[RunStatus | None, int]:
    """Follow a run until it ends; return its status (None if the user interrupted) and exit code.

    `prints_failures`: leave on the screen which slices failed; False if the caller prints them at
    the end, and only their number is shown until then.
    """
    from slurm_jobs.cli.options import page_console

    console = page_console()
    try:
        if quiet:
            (last,) = deque(_views(run_dir), maxlen=1)
            status = last.status
        elif console.is_terminal and not console.is_dumb_terminal:
            status = _follow_live(run_dir, console, keeps_failure=prints_failures)
        else:
            status = _follow_lines(run_dir, prints_failures=prints_failures)
    except KeyboardInterrupt:
        folder = shown_path(run_dir)
        print(
            f"\nno longer watching; the run continues.\nnext: {command_text('status', folder)}\n"
            f"  or: {command_text('cancel', folder)}",
            file=sys.stderr,
        )
        return None, INTERRUPTED_EXIT_CODE
    return status, exit_code(status)


def _views(
    run_dir: Path, *, with_failure: bool = False, reported: Collection[FailedAttempt] | None = None
) -> Iterator[RunView]:
    return views_until_over(
        lambda: read_view(run_dir, with_failure=with_failure, reported=reported),
        lambda view: view.status,
        lambda view, problem: replace(view, status=in_doubt(view.status, problem)),
        read_meta(RunPaths(run_dir)).scheduler,
    )


def _follow_live(run_dir: Path, console: Console, *, keeps_failure: bool) -> RunStatus:
    from rich.live import Live

    views = _views(run_dir, with_failure=True)
    view, ended = next(views), False
    # Drawn by a thread once a second, so that ages grow during a query.
    with Live(
        get_renderable=lambda: live_view(view, console, now_unix_s=time.time(), is_over=ended),
        console=console,
        refresh_per_second=1,
    ) as live:
        live.refresh()
        for view in views:  # noqa: B007 - the function above shows it
            live.refresh()
        ended = True
        if not keeps_failure:
            view = replace(view, failure=None)
    return view.status


def _follow_lines(run_dir: Path, *, prints_failures: bool) -> RunStatus:
    shown: dict[str, str] = {}
    reported: set[FailedAttempt] = set()
    began_s = last_progress_s = time.monotonic()
    for view in _views(run_dir, reported=reported if prints_failures else None):
        now_s = time.monotonic()
        is_time = now_s - last_progress_s > PROGRESS_INTERVAL_S
        last_progress_s = now_s if is_time else last_progress_s
        lines = lines_of(view)
        changes = []
        for name, line in lines.items():
            progress = view.progress.get(name, "") if is_time else ""
            if shown.get(name) != line or progress:
                changes.append(f"{line} {progress}".rstrip())
        if not reported.issuperset(view.new_failures.attempts):  # otherwise it repeats the last one
            changes += view.new_failures.lines
        reported |= view.new_failures.attempts
        for change in changes:
            print(f"[{now_s - began_s:6.1f} s] {change}", flush=True)
        shown = lines
    return view.status


def lines_of(view: RunView) -> dict[str, str]:
    """Return a line for each stage, and for each source that does not answer.

    For example `train: running (0/1, 1 running)`; with the reason for stranded stages.
    """
    lines = {}
    for stage in view.status.stages:
        is_stuck = stage.status == "stranded" or any(part.wait for part in stage.slices)
        why = reason_to_wait(stage) if is_stuck else ""
        line = f"{stage.stage.name}: {stage.status} ({tasks_text(stage)})"
        lines[stage.stage.name] = f"{line}: {why}" if why else line
    return lines | {f"source {n}": text for n, text in enumerate(source_lines(view.status))}
