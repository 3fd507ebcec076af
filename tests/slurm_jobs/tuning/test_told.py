"""What is said of a tuning in one sentence."""

from __future__ import annotations

from slurm_jobs.tuning.summary import TOO_SHORT, disturbed, why_nothing_tried


def test_a_change_that_only_needs_longer_trials_is_not_called_unnamed() -> None:
    left = {"name": "num_prefetch_batches: 8", "why": TOO_SHORT, "needs_s": None}
    said = why_nothing_tried({"not_tried": [left]})
    assert said == ("trials have too few steps for num_prefetch_batches: 8: give a larger --budget")


def test_others_on_the_cores_are_told_above_all_numbers_and_only_where_they_were() -> None:
    title = "other processes hold the job's cores on cpu1 (train)"
    result = {"findings": [{"rule": "data-wait", "title": "x"}]}
    assert disturbed(result) == ""
    result["findings"].append({"rule": "foreign-load", "title": title})
    assert disturbed(result).startswith(f"{title}: what follows has that in it")
