"""Attempts of each stage: when and where each ran, how it ended, why, and what that cost. PURE."""

from __future__ import annotations

from slurm_jobs.report.attempts.attempt_losses import loss_text
from slurm_jobs.report.attempts.attempt_table import (
    attempt_rows,
    clock_text,
    others_text,
    shown_entries,
)
from slurm_jobs.report.page.markup import Html, el, prose, titled_table
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.report.values.report_model import RunReport


def attempts_section(report: RunReport) -> Html | None:
    """Return a table for each stage with attempts to explain; None if there is none."""
    if not report.attempts:
        return None
    note = (
        "These slices were tried again, failed or were cancelled. What ended an attempt follows "
        "from its record and from Slurm's accounting. An attempt loses the time before its first "
        "step if it continues an earlier one, and work that was done again. Times are in UTC."
    )
    return el(
        "section",
        el("h2", "Attempts: how each ended, and why"),
        map(_stage, report.attempts),
        el("p", note, class_="dim"),
        id="attempts",
    )


def _stage(attempts: StageAttempts) -> Html:
    shown = shown_entries(attempts.entries)
    columns, rows = attempt_rows(shown, clock_text, is_array=attempts.num_slices > 1)
    place = len([name for name in columns if name not in {"steps", "lost"}])
    with_reasons = [
        (*row[:place], prose(entry.reason), *row[place:])
        for row, entry in zip(rows, shown, strict=True)
    ]
    more = others_text(attempts, shown)
    has_loss = attempts.lost.seconds > 0
    return el(
        "div",
        titled_table(
            attempts.stage,
            (*columns[:place], "why", *columns[place:]),
            with_reasons,
            num_text=place + 1,
        ),
        el("p", f"{more}, in report.json", class_="dim") if more else None,
        el("p", f"Lost: {loss_text(attempts.lost)}.") if has_loss else None,
    )
