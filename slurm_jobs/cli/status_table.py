"""A run's stages as a table. Layout only: `look` has read everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import age_text, clock_text, duration_text
from slurm_jobs.reconcile import Status

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.cli.look import Seen
    from slurm_jobs.reconcile import RunStatus, StageStatus

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


def title_text(seen: Seen, now_unix_s: float) -> Text:
    """Return the run, its status, and the age of the status."""
    from rich.text import Text

    status = seen.status
    asked = status.asked_unix_s
    return Text.assemble(
        (seen.run_id, "bold"),
        f" on {seen.scheduler}, submitted {age_text(seen.created_unix_s, now_unix_s)}: ",
        (status.status, STYLES[status.status]),
        f" (asked {age_text(asked, now_unix_s)})" if asked is not None else "",
    )


def stages_table(seen: Seen, *, now_unix_s: float, width: int) -> Table:
    """Return a table with one line per stage."""
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= WIDE_ENOUGH
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("stage", "status", "tasks"):
        table.add_column(column, overflow="fold")
    for column in ("job", "source") if is_wide else ():
        table.add_column(column, overflow="fold")
    table.add_column("detail", overflow="fold")
    for stage in seen.status.stages:
        table.add_row(
            stage.stage.name,
            Text(stage.status, style=STYLES[stage.status]),
            tasks_text(stage),
            *([_jobs_text(stage), source_text(seen.status, stage, now_unix_s)] if is_wide else []),
            Text(detail_text(seen, stage, now_unix_s)),
        )
    return table


def tasks_text(stage: StageStatus) -> str:
    """Return `3/4, 1 failed`."""
    counts = stage.counts
    total = stage.stage.num_slices
    done = f"{counts.get('completed', 0)}/{total}"
    others = [f"{counts[word]} {word}" for word in STYLES if word != "completed" and counts[word]]
    return ", ".join([done, *others]) if total > 1 else done


def _jobs_text(stage: StageStatus) -> str:
    ids = dict.fromkeys((s.job_id or "").partition("_")[0] for s in stage.slices)
    return " ".join(job_id for job_id in ids if job_id) or "-"


def source_text(status: RunStatus, stage: StageStatus, now_unix_s: float) -> str:
    """Return the source of the status and its age: `squeue, 4 s ago`; `record`."""
    names = " + ".join(stage.sources)
    asked = status.asked_for(stage.sources)
    return names if asked is None else f"{names}, {age_text(asked, now_unix_s)}"


def detail_text(seen: Seen, stage: StageStatus, now_unix_s: float) -> str:
    """Return the progress of a running task, or why a stage waits, with its expected start."""
    if stage.status == "running":
        return seen.progress.get(stage.stage.name) or _start_text(stage, now_unix_s)
    if stage.status in {"waiting", "stranded"}:
        texts = (reason_to_wait(stage), _start_text(stage, now_unix_s))
        return "; ".join(text for text in texts if text)
    return ""


def reason_to_wait(stage: StageStatus) -> str:
    """Return why a stage waits, or can never start: its reason, or that of its first such slice."""
    waits = [part for part in stage.slices if part.status == stage.status]
    waits.sort(key=lambda part: not part.wait)
    return stage.reason or (waits or stage.slices)[0].reason


def _start_text(stage: StageStatus, now_unix_s: float) -> str:
    """Return when the next waiting task should start, if Slurm gives an estimate."""
    starts = [
        part.start_unix_s
        for part in stage.slices
        if part.status == "waiting" and part.start_unix_s is not None
    ]
    first = min((start for start in starts if start > now_unix_s), default=None)
    if first is None:
        return ""
    what = "next expected" if stage.status == "running" else "expected"
    in_s = first - now_unix_s
    return f"{what} to start {clock_text(first, now_unix_s)} (in {duration_text(in_s)})"
