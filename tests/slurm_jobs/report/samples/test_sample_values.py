"""Runs of tokens end where supervision does."""

from __future__ import annotations

from tests.slurm_jobs.report.samples.printed_samples import printed
from tests.slurm_jobs.report.samples.shown_samples import IMAGE, sample


def test_runs_of_one_image_end_where_supervision_does() -> None:
    half = sample(labels=[-100, -100, IMAGE, IMAGE, -100, 3, 4, 5])
    assert "<image>[[[(<image> x 2)]]]" in printed(half)
    assert half.num_supervised_tokens == 5
