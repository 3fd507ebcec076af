"""The result of a tuning on a screen of 80 columns."""

from __future__ import annotations

import json
from typing import Any

from tests.slurm_jobs.tuning.ended_tunings import flat, result, shown, threads_help


def test_what_a_ceiling_predicts_is_not_called_a_bound():
    head = next(line for line in shown(result(threads_help)).splitlines() if "its finding" in line)
    assert head.split() == ["change,", "and", "its", "finding", "predicted", "measured"]


def test_the_result_is_json_and_its_text_fits_80_columns():
    def fails(ask: Any) -> str:
        is_it = ask.changes and ask.changes[-1].key == "num_compute_threads"
        return "rank 0: OutOfMemoryError: no room" if is_it else ""

    values = json.loads(json.dumps(result(threads_help, fails=fails)))
    text = shown(values)
    assert max(map(len, text.splitlines())) <= 80
    assert "OutOfMemoryError" in text
    assert "num_loader_threads: 16" in text
    assert "cpus_per_task" in text
    assert "2 -> 8" in text


def test_what_was_kept_and_proves_no_gain_is_called_taken_back():
    values = {**result(threads_help), "is_taken_back": True}
    text = shown(values)
    assert "taken back" in text
    assert "the new spec does not have it" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "taken back" not in shown(result(threads_help))


def test_a_change_that_saves_more_than_its_finding_counts_is_explained():
    told = "a change may save other time, too"
    values = result(threads_help)
    assert told in " ".join(shown(values).split())
    assert told not in " ".join(shown(result(flat)).split())


def test_data_that_costs_time_without_a_wait_is_reported_with_the_cause():
    values = result(threads_help)
    told = "what loads it takes cores from what computes"
    assert told not in " ".join(shown(values).split())
    unseen = {**values["data"], "predicted": "", "predicted_times": None, "word": "faster"}
    assert told in " ".join(shown({**values, "data": unseen}).split())
