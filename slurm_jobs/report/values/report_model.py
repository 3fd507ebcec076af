"""Content of a report as plain values: made by `numbers`, shown by three renderers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.files import plain_json
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.report.values.cost_model import CostNumbers, Projection
from slurm_jobs.report.values.data_model import DataNumbers, EvaluationNumbers
from slurm_jobs.report.values.efficiency_model import StageEfficiency
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.provenance_model import ProvenanceNumbers
from slurm_jobs.report.values.stage_model import Bar, StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers
from slurm_jobs.status.slice_status import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class RunHeader:
    """User, command and status of the run."""

    run_id: str
    name: str
    title: str
    status: Status
    status_head: str
    """The stage that sets it; empty if the run has completed."""
    status_reason: str
    """The same, with the reason of that stage's status."""
    submitted_by: str
    host: str
    scheduler: str
    version: str
    spec_file: str
    created_unix_s: float
    """Time of its first submit, or first start if the submitting machine's clock was ahead."""
    last_unix_s: float
    """End of the last attempt; time of reading if the run is active."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One of the five numbers at the top."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """Content of the report."""

    header: RunHeader
    verdict: str
    tunings: tuple[str, ...]
    """Result of each `tune`, a sentence."""
    tiles: tuple[Tile, ...]
    timeline: tuple[TimeShare, ...]
    """Every second from submit to end, once."""
    timeline_note: str
    bars: tuple[Bar, ...]
    stages: tuple[StageNumbers, ...]
    training: tuple[TrainingNumbers, ...]
    data: tuple[DataNumbers, ...]
    evaluation: tuple[EvaluationNumbers, ...]
    """One for each stage that evaluated something, in the spec's order."""
    findings: tuple[Finding, ...]
    checks: tuple[RuleOutcome, ...]
    notes: tuple[str, ...]
    """Missing information, with reasons."""
    spec: Mapping[str, Any]
    """Resolved spec, without values that look like secrets."""
    provenance: ProvenanceNumbers
    """Origin of the run, and its machines."""
    cost: CostNumbers
    """Cost of the run."""
    attempts: tuple[StageAttempts, ...]
    """Attempts of each stage that has any to explain."""
    efficiency: tuple[StageEfficiency, ...]
    """Of each stage that has started."""
    projections: tuple[Projection, ...]
    """Projections of unfinished trainings, and of epochs that were requested."""


FORMAT_NAME = "slurm-jobs-report-1"


def report_to_json(report: RunReport) -> dict[str, Any]:
    """Return all fields of the report by name; NaN and infinity, which JSON lacks, become null."""
    values: dict[str, Any] = plain_json(dataclasses.asdict(report))
    return {"format": FORMAT_NAME, **values}
