"""Arms of measured runs."""

from __future__ import annotations

from tests.slurm_jobs.report.comparison.measured import measured


def arm(name, *speeds, **values):
    return [measured(f"{name}{i}", tokens_per_s=s, **values) for i, s in enumerate(speeds)]
