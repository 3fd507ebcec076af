"""Report as JSON values. PURE."""

from __future__ import annotations

import dataclasses
from typing import Any

from slurm_jobs.common.files import plain_json
from slurm_jobs.report.model.run import RunReport

FORMAT_NAME = "slurm-jobs-report-1"


def report_to_json(report: RunReport) -> dict[str, Any]:
    """Return all fields of the report by name; NaN and infinity, which JSON lacks, become null."""
    values: dict[str, Any] = plain_json(dataclasses.asdict(report))
    return {"format": FORMAT_NAME, **values}
