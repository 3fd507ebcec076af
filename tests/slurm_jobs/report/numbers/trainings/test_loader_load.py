"""Activity of the loader's threads, of the rank that waits longest for its data."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import finding


def test_the_worst_ranks_threads_are_read_from_its_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.1, slow_rank_extra_s=0.3, loader_s=(0.9, 0.05, 0.01)
    )
    told = report.training[0].loader
    assert (told.rank, told.node) == (1, "gpu-01")
    assert (told.work_s, told.cpu_s, told.core_wait_s) == pytest.approx((0.9, 0.05, 0.01))
    assert told.read_blocked_s is None
    found = finding(report, "data-wait")
    assert found.cause == "storage"
    assert ": storage is slow (train)" in found.title
    assert "are blocked 93 %" in found.evidence[-1]


def test_what_the_one_reading_thread_was_blocked_is_read_from_the_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.3, loader_s=(2.0, 0.05, 0.01), loader_read_blocked_s=1.5
    )
    assert report.training[0].loader.read_blocked_s == pytest.approx(1.5)
