"""Samples as a terminal has them."""

from __future__ import annotations

from typing import Any

from slurm_jobs.report.samples.sample_values import ShownSample
from slurm_jobs.report.samples.samples_terminal import print_samples
from tests.slurm_jobs.report import builders


def printed(shown: ShownSample, **options: Any) -> str:
    return builders.printed([shown], show=print_samples, **options)
