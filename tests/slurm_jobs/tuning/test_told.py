"""What is said of a tuning in one sentence."""

from __future__ import annotations

from slurm_jobs.tuning.told import TOO_SHORT, why_nothing_tried


def test_a_change_that_only_needs_longer_trials_is_not_called_unnamed() -> None:
    left = {"name": "num_prefetch_batches: 8", "why": TOO_SHORT, "needs_s": None}
    said = why_nothing_tried({"not_tried": [left]})
    assert said == ("trials have too few steps for num_prefetch_batches: 8: give a larger --budget")
