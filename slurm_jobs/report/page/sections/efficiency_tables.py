"""Efficiency of the stages: what was requested, used and wasted. PURE."""

from __future__ import annotations

from slurm_jobs.report.page.markup import Html, bullets, el, titled_table
from slurm_jobs.report.text import efficiency_text, sentences
from slurm_jobs.report.text.efficiency_text import HOUR_COLUMNS, Row
from slurm_jobs.report.values.report_model import RunReport

_NOTE = (
    "Cores, time limit and GPUs are those of one job or array task in its newest request, and "
    "memory is per node. The share of the cores is processor time over cores x elapsed time, as "
    "seff computes it. Memory is that of the largest task, and a task that was killed at its limit "
    "needs more. Time is that of the longest job. The next request follows from the rules on "
    "memory and time."
)
_HOURS_NOTE = (
    "Hours are allocated, busy or not. Failed hours left nothing, because an attempt failed or was "
    "cancelled. Repeated hours were spent on work that was done again, or that another job "
    "replaced. The rest counts as idle as far as cores or GPUs were not used."
)


def efficiency_tables(report: RunReport) -> Html | None:
    """Return the table of requests and the table of hours, with the reasons for dashes."""
    efficiency = report.efficiency
    lines = efficiency_text.lines_below(efficiency)
    below = bullets(lines) if lines else None
    if not efficiency_text.has_numbers(efficiency):
        return below
    uses = []
    for stage, row in zip(efficiency, efficiency_text.use_rows(efficiency), strict=True):
        name, *cells = row
        uses.append((name, sentences.next_request(report, stage.stage), *cells))
    columns = ("stage", "next request", *efficiency_text.use_columns(efficiency))
    hours: list[Row] = []
    for stage in efficiency:
        hours.append(efficiency_text.cpu_row(stage))
        if stage.gpu_hours.value:
            hours.append(efficiency_text.gpu_row(stage))
    return el(
        "div",
        titled_table("Efficiency: used of what was requested", columns, uses, num_text=2),
        el("p", _NOTE, class_="dim"),
        titled_table("Hours, and what was wasted", ("stage", *HOUR_COLUMNS), hours),
        below,
        el("p", _HOURS_NOTE, class_="dim"),
    )
