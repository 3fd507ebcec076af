"""Stages: waits, requests and use. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.page.markup import Html, bullets, el, table
from slurm_jobs.report.page.sections.efficiency_tables import efficiency_tables
from slurm_jobs.report.text import sentences
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import StageNumbers

_WAITS = {
    "dependency wait": "dependency_wait_median_s",
    "queue wait": "queue_wait_median_s",
    "longest queue": "queue_wait_max_s",
    "ran for": "running_s",
}
"""Columns, and the fields of a stage that they show."""


def stages_section(report: RunReport) -> Html:
    """Return the tables of all stages."""
    waits: list[list[str]] = []
    for stage in report.stages:
        name = units.stage_name(stage.name, is_former=stage.is_former)
        done = f"{stage.num_completed:,}/{stage.num_tasks:,}"
        times = stage.task_time
        spread = (times.median_s, times.p95_s, times.max_s) if times else ()
        shown = [units.seconds(value) for value in spread] or [units.NOT_KNOWN] * 3
        numbers = [units.quantity(getattr(stage, field)) for field in _WAITS.values()]
        waits.append([name, stage.status, done, f"{stage.num_attempts:,}", *numbers, *shown])
    wait_columns = (
        "stage",
        "status",
        "done",
        "attempts",
        *_WAITS,
        "median task",
        "p95",
        "slowest task",
    )
    stranded = sentences.why_stranded(report.stages)
    note = (
        "Waits are medians over jobs: the dependency wait ends when a job is eligible, the queue "
        "wait when it starts. A task's time is that of one attempt that completed. A job's time "
        "includes its start, its end, and all attempts in it, so the longest job can be longer "
        "than the slowest task. A stage ran while at least one of its attempts did."
    )
    return el(
        "section",
        el("h2", "Stages: waits and use"),
        table(wait_columns, waits, num_text=2),
        bullets(stranded) if stranded else None,
        _longest(report.stages),
        efficiency_tables(report),
        el("p", note, class_="dim"),
        id="slurm",
    )


def _longest(stages: Sequence[StageNumbers]) -> Html | None:
    lines = []
    for stage in stages:
        times = stage.task_time
        if times and times.num > 1:
            lines.append(
                f"slowest task of {stage.name}: {units.seconds(times.max_s)}, {times.slowest}"
            )
        if stage.longest_job:
            lines.append(
                f"longest job of {stage.name}: {units.quantity(stage.longest_s)}, "
                f"{stage.longest_job}"
            )
    return el("div", [el("p", line) for line in lines], class_="dim") if lines else None
