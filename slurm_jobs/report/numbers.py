"""From the records of a run to everything that its report says: PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.report.findings import find
from slurm_jobs.report.inputs import ReportInputs
from slurm_jobs.report.model import (
    RunHeader,
    RunReport,
    StageNumbers,
    Status,
    TrainingNumbers,
)
from slurm_jobs.report.numbers_attempts import REPORT_RUN, gather_attempts
from slurm_jobs.report.numbers_data import data_numbers, evaluation_numbers
from slurm_jobs.report.numbers_stages import stage_numbers
from slurm_jobs.report.numbers_timeline import run_span, timeline
from slurm_jobs.report.numbers_training import training_numbers
from slurm_jobs.report.verdict import make_tiles, make_verdict


def build_report(inputs: ReportInputs, config: ReportConfig) -> RunReport:
    """The whole report."""
    attempts = gather_attempts(inputs)
    stages = tuple(stage_numbers(stage, attempts[stage.name]) for stage in inputs.stages)
    training = tuple(
        numbers
        for stage in inputs.stages
        for numbers in training_numbers(stage, attempts[stage.name], config.warmup_steps)
    )
    shares, note = timeline(inputs, attempts)
    worked = tuple(stage for stage in stages if stage.run != REPORT_RUN)
    findings, checks = find(worked, training, shares, note)
    header = _header(inputs, worked, run_span(inputs, attempts)[1], config)
    evaluation = evaluation_numbers([stage.results for stage in worked])
    return RunReport(
        header=header,
        verdict=make_verdict(header, shares, findings, checks),
        tiles=make_tiles(header, shares, note, training, evaluation),
        timeline=shares,
        timeline_note=note,
        bars=tuple(f.bar for stage in worked for f in attempts[stage.name]),
        stages=stages,
        training=training,
        data=data_numbers(inputs),
        evaluation=evaluation,
        findings=findings,
        checks=checks,
        notes=_notes(inputs, note, training),
        spec=inputs.spec,
    )


def _header(
    inputs: ReportInputs, stages: Sequence[StageNumbers], last_unix_s: float, config: ReportConfig
) -> RunHeader:
    run: Mapping[str, object] = inputs.run
    status, reason = overall_status(stages)
    name = str(run.get("name", inputs.spec.get("name", "")))
    return RunHeader(
        run_id=str(run.get("run_id", "")),
        name=name,
        title=config.title or name,
        status=status,
        status_reason=reason,
        submitted_by=str(run.get("submitted_by", "")),
        host=str(run.get("host", "")),
        scheduler=str(run.get("scheduler", "")),
        version=str(run.get("version", "")),
        spec_file=str(run.get("spec_file", "")),
        created_unix_s=float(inputs.run["created_unix_s"]),
        last_unix_s=last_unix_s,
    )


def overall_status(stages: Sequence[StageNumbers]) -> tuple[Status, str]:
    """Status of the run and the stage that decides it; the report's own stage is left out."""
    if all(stage.status == "completed" for stage in stages):
        return "completed", ""
    order: tuple[Status, ...] = ("running", "failed", "stopped", "unknown", "waiting")
    for status in order:
        for stage in stages:
            if stage.status == status:
                reason = f": {stage.status_reason}" if stage.status_reason else ""
                return status, f"{stage.name} {status}{reason}"
    return "unknown", ""


def _notes(
    inputs: ReportInputs, timeline_note: str, training: Sequence[TrainingNumbers]
) -> tuple[str, ...]:
    notes = [timeline_note] if timeline_note else []
    notes.extend(f"{t.stage}: {t.too_few}" for t in training if t.too_few)
    notes.extend(f"{t.stage}, {note}" for t in training for note in t.notes)
    if not training:
        notes.append("no stage recorded training steps")
    notes.append("device timeline (busy, idle, communicating): not recorded")
    notes.extend(inputs.problems)
    return tuple(notes)
