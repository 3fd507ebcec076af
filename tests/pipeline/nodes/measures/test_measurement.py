"""Repetitions of a measurement within a time budget."""

from __future__ import annotations

from pipeline.nodes.measures.measurement import Deadline, repeated


def test_repeats_end_with_their_time_and_have_a_least_number() -> None:
    assert len(repeated(lambda: 1.0, Deadline.after(-1), most=9)) == 3
    assert len(repeated(lambda: 1.0, Deadline.after(60), most=9)) == 9
