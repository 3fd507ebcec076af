"""Report for a reader who gets the failures elsewhere. PURE."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from slurm_jobs.report.model.run import RunReport, StageNumbers
from slurm_jobs.report.verdict import make_verdict


def without_failures(report: RunReport, names: Collection[str]) -> RunReport:
    """Return the report without the reasons of these failures.

    Args:
        report: report of a run.
        names: of attempts that failed, as `words.attempt_name` has them. Others, such as those
            before a retry, stay in the report.
    """
    if not names:
        return report
    header = replace(report.header, status_reason=_without_reason(report))
    return replace(
        report,
        header=header,
        verdict=make_verdict(header, report.timeline, report.findings, report.checks),
        stages=tuple(_stage_without(stage, names) for stage in report.stages),
    )


def _without_reason(report: RunReport) -> str:
    """Return which stage sets the run's status; the reason only if that is no failure."""
    told = report.header.status_reason
    for stage in report.stages:
        which = f"{stage.name} failed"
        if told == f"{which}: {stage.status_reason}":
            return which
    return told


def _stage_without(stage: StageNumbers, names: Collection[str]) -> StageNumbers:
    heads = tuple(f"{name}: " for name in names)
    return replace(stage, failures=tuple(f for f in stage.failures if not f.startswith(heads)))
