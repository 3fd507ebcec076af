"""Trials as they are read: by the rules of the report, and whatever else lies beside them."""

from __future__ import annotations

import pytest

from slurm_jobs.base.errors import StageError
from slurm_jobs.report.comparison.run_measures import measure
from slurm_jobs.tuning.trial_results import read_trial
from tests.slurm_jobs.report import fabricate_run as fabrication


def fabricated(run_dir, **properties):
    paths, _ = fabrication.fabricate(run_dir, fabrication.Scenario(**properties))
    return paths


def test_the_speed_of_a_trial_is_the_one_that_compare_has(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    found = read_trial(paths.timing_stage_dir("train"), "train", {"checkpoint": {}})
    known = measure(paths.run_dir)
    assert found.tokens_per_s == known.tokens_per_s
    assert found.samples_per_s == known.samples_per_s


def test_the_findings_of_a_trial_are_the_reports_strongest_first(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None, data_wait_s=0.5)
    found = read_trial(paths.timing_stage_dir("train"), "train", {"checkpoint": {}})
    rules = [cause.rule for cause in found.causes]
    assert "data-wait" in rules
    times = [cause.times or 0.0 for cause in found.causes]
    assert times == sorted(times, reverse=True)
    wait = next(cause for cause in found.causes if cause.rule == "data-wait")
    assert wait.times is not None
    assert wait.times > 1.4
    assert "(train)" not in wait.title
    assert found.data_wait_share > 0.2


def test_a_trial_without_steps_says_so(tmp_path):
    with pytest.raises(StageError, match="no step of all ranks is left"):
        read_trial(tmp_path, "train", {})
