"""Configs of the built-in stages refuse values that mean nothing."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.configs.stages import ReportConfig


def test_a_negative_warm_up_is_refused():
    with pytest.raises(ValueError, match="warmup_steps is -1"):
        ReportConfig(warmup_steps=-1)
