"""Statistics of a data set that another version wrote are not read."""

from __future__ import annotations

import pytest

from slurm_jobs.report.values.data_statistics import read_statistics
from tests.slurm_jobs.report.fabricate_run import STATISTICS


@pytest.mark.parametrize(
    "values",
    [None, {}, {**STATISTICS, "num_tokens": None}, {**STATISTICS, "num_tokens_bins": [[1, 2]]}],
)
def test_statistics_of_another_version_are_none(values):
    assert read_statistics(values) is None
