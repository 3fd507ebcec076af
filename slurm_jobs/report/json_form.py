"""Everything that a report says, as JSON values: PURE."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from slurm_jobs.report.model import RunReport

FORMAT_NAME = "slurm-jobs-report-1"


def report_to_json(report: RunReport) -> dict[str, Any]:
    """All fields of the report by name; NaN and infinity, which JSON lacks, become null."""
    values: dict[str, Any] = _plain(dataclasses.asdict(report))
    return {"format": FORMAT_NAME, **values}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
