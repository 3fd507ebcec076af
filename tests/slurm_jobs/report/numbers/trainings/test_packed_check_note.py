"""What a report says of the comparison of packed samples with themselves alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.formats.timings.packed_check import PACKED_CHECK_SPAN
from slurm_jobs.report.numbers.trainings.packed_check_note import packed_check_note

NOTES = {"num_samples": 2, "difference": 0.00028, "limit": 0.0625, "is_exact": True}


def note_of(**notes: Any) -> tuple[str, ...]:
    span = {"name": PACKED_CHECK_SPAN, **notes}
    ranks = (SimpleNamespace(rank=1, spans=()), SimpleNamespace(rank=0, spans=(span,)))
    attempt: Any = SimpleNamespace(attempt=3, ranks=ranks)
    return packed_check_note(attempt)


@pytest.mark.parametrize(
    ("is_exact", "end"),
    [(True, "6.2 %, and no bit changed with other neighbours"), (False, "explains 6.2 %")],
)
def test_packed_equals_alone_where_it_was_checked(is_exact, end):
    (note,) = note_of(**NOTES | {"is_exact": is_exact})
    assert note.startswith("attempt 3: packed equals alone: checked with 2 samples. Logits differ")
    assert "by 0.028 %" in note
    assert note.endswith(end)


def test_nothing_is_said_where_nothing_was_compared():
    assert note_of(**NOTES | {"num_samples": 0}) == ()
    assert note_of() == ()
