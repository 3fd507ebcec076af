"""Table of a run's stages, and the title above it. Layout only: `read_view` has read everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_jobs.cli.run_view.run_snapshot import RunView
from slurm_jobs.cli.run_view.status_styles import STYLES
from slurm_jobs.cli.terminal.numbers_in_words import age_text, clock_text, duration_text
from slurm_jobs.status.slice_status import Status

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.status.run_status import StageStatus


_VERBS: dict[Status, str] = {"failed": "has ", "unknown": "has the status "}
"""What joins a status to the name of the run in a sentence, if it is not `is`."""
WIDE_ENOUGH = 80
"""Below this many characters the least helpful columns are omitted."""


def title_text(view: RunView, now_unix_s: float) -> Text:
    """Return the run, its status, and the age of the status."""
    from rich.text import Text

    status = view.status
    asked_s = status.asked_unix_s
    return Text.assemble(
        (view.run_id, "bold"),
        f" was submitted to {view.scheduler} {age_text(view.created_unix_s, now_unix_s)} and ",
        _VERBS.get(status.status, "is "),
        (status.status, STYLES[status.status]),
        f" (checked {age_text(asked_s, now_unix_s)})" if asked_s is not None else "",
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
