"""Steps that count for a speed: none that compiled, was profiled, saved or evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.report.comparison.run_measures import measure
from slurm_jobs.report.comparison.run_settings import unlike_within
from tests.slurm_jobs.report.builders import add_span, change_steps, edited
from tests.slurm_jobs.report.comparison.measured_folder import folder, paths

__all__ = ["folder", "paths"]


def steps_of(folder, rank):
    return read_steps(steps_path(folder, rank)).steps


def test_speed_is_measured_without_checkpoints_and_evaluation(paths, folder):
    found = measure(paths.run_dir)
    ranks = [steps_of(folder, rank)[5:] for rank in range(2)]
    apart_s = [r["checkpoint_s"].sum() + r["evaluation_s"].sum() for r in ranks]
    seconds = min(float(r["step_s"].sum()) - a for r, a in zip(ranks, apart_s, strict=True))
    tokens = sum(int(r["num_tokens"].sum()) for r in ranks)
    assert found.tokens_per_s == pytest.approx(tokens / seconds, rel=1e-5)
    assert (found.num_steps, found.samples_per_step) == (395, 64)
    assert found.apart_s["checkpoint_s"] == pytest.approx(8 * 0.9, rel=1e-5)
    assert found.apart_s["evaluation_s"] == pytest.approx(2 * 2.5, rel=1e-5)
    assert len(found.token_stretches) == 10
    assert found.settings["train.config.batch_size"] == "32"
    assert found.settings["stage preprocess.config.too_long"] == "drop"
    assert not any("report" in name for name in found.settings)


def test_checkpoints_saved_more_often_change_no_speed(paths, folder):
    def save_more(steps):
        steps["checkpoint_s"] += 0.5
        steps["step_s"] += 0.5

    first = measure(paths.run_dir)
    change_steps(folder, save_more)
    second = measure(paths.run_dir)
    assert second.tokens_per_s == pytest.approx(first.tokens_per_s, rel=1e-4)
    assert second.apart_s["checkpoint_s"] > first.apart_s["checkpoint_s"] + 100


def test_steps_that_compiled_are_left_out_whole(paths, folder):
    def compile_two(steps):
        steps["compile_s"][[7, 9]] = 3.0
        steps["step_s"][[7, 9]] += 60.0

    change_steps(folder, compile_two, ranks=[1])
    found = measure(paths.run_dir)
    assert (found.num_steps, found.num_compiled_steps) == (393, 2)


def test_profiled_steps_are_left_out_whole_and_repeats_may_differ_in_them(paths, folder):
    def profile(steps):
        steps["forward_s"][19:30] += 5.0
        steps["step_s"][19:30] += 5.0
        steps["start_unix_s"][20:30] += 5.0 * np.arange(1, 11)
        steps["start_unix_s"][30:] += 55.0

    first = measure(paths.run_dir)
    with edited(paths.resolved_spec) as spec:
        spec["stages"]["train"]["config"]["profile"] = {"steps": [20, 29]}
    change_steps(folder, profile)
    for rank in range(2):
        written = float(steps_of(folder, rank)["start_unix_s"][30]) - 1e-3
        add_span(folder, rank, "profile_write", written, 1e-3, first_step=20, num_steps=10)
    second = measure(paths.run_dir)
    assert (second.num_steps, second.num_profiled_steps) == (384, 11)
    assert second.tokens_per_s == pytest.approx(first.tokens_per_s, rel=5e-3)
    assert unlike_within([first, second]) == []
    assert "the memory has the profiler's records in it" in second.notes[0]
