"""The result of comparing packed samples with themselves alone, as spans hold it."""

from __future__ import annotations

from dataclasses import asdict

from slurm_jobs.formats.timings.packed_check import (
    PACKED_CHECK_SPAN,
    PackedCheck,
    read_packed_check,
)

CHECK = PackedCheck(num_samples=2, difference=1e-6, limit=1e-3, is_exact=True)
SPAN = {"name": PACKED_CHECK_SPAN, "start_unix_s": 1.0, "duration_s": 2.0, **asdict(CHECK)}


def test_the_last_whole_result_is_read():
    earlier = {**SPAN, "num_samples": 1}
    failed = {"name": PACKED_CHECK_SPAN, "error": "PackingLeakError"}
    damaged = {**SPAN, "limit": "0.1"}
    spans = [{"name": "export"}, earlier, SPAN, failed, damaged]
    assert read_packed_check(spans) == CHECK


def test_spans_of_earlier_versions_have_no_result():
    assert read_packed_check([{"name": "export"}]) is None
