"""Failures of many slices: each cause is one line, and a rare one is not left out."""

from __future__ import annotations

import re

from slurm_jobs.report.page.failure_causes import failure_causes
from slurm_jobs.run.attempt_history import AttemptEntry


def failure(index: int, reason: str, node: str = "n1") -> AttemptEntry:
    return AttemptEntry(
        stage="embed", slice_index=index, attempt=1, job_id=f"12_{index}", node=node,
        start_unix_s=0.0, end_unix_s=9.0, ending="failed", state="FAILED", reason=reason,
    )  # fmt: skip


def lines_of(entries, failed=None) -> list[str]:
    slices = sorted({entry.slice_index for entry in entries}) if failed is None else failed
    return re.findall("<li>(.*?)</li>", str(failure_causes(slices, entries)))


def test_equal_failures_on_several_nodes_are_one_line():
    entries = [
        failure(index, f"rank 0 on n{index}: ValueError: no caption", node=f"n{index}")
        for index in (2, 3, 9)
    ]
    assert lines_of(entries) == ["failed: rank 0: ValueError: no caption (3 slices: 2-3, 9)"]


def test_one_failure_of_another_kind_is_named_after_hundreds():
    entries = [failure(index, "ValueError: no caption") for index in range(0, 1000, 2)]
    entries.append(failure(999, "OSError: disk full"))
    first, second = lines_of(entries)
    assert first.endswith("(500 slices: 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 488 more)")
    assert second == "failed: OSError: disk full (1 slice: 999)"


def test_the_last_attempt_of_a_slice_counts():
    entries = [failure(1, "first"), failure(1, "second")]
    assert lines_of(entries) == ["failed: second (1 slice: 1)"]


def test_a_slice_without_an_attempt_has_no_reason():
    assert lines_of([], failed=[4]) == ["failed: no reason was written down (1 slice: 4)"]


def test_a_page_names_a_dozen_causes_and_counts_the_others():
    lines = lines_of([failure(index, f"error {index}") for index in range(100)])
    assert len(lines) == 13
    assert lines[-1] == "and 88 for 88 more reasons, in report.json"
