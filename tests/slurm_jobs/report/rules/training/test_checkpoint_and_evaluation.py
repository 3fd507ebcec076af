"""Advice on checkpoints that take much of the time is what the config leaves to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.rules.training.checkpoint_and_evaluation import checkpoint_stall
from tests.slurm_jobs.report.builders import edited, report_on
from tests.slurm_jobs.report.rules.training.saves import saving

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


@pytest.mark.parametrize(
    ("saves", "knob"),
    [
        (
            {"mode": "async", "every_min": 30.0, "every_steps": 10},
            (
                "Save less often: raise checkpoint.every_min (now 30) and checkpoint.every_steps "
                "(now 10), whichever comes first. A kill"
            ),
        ),
        (
            {"mode": "sync", "every_min": None, "every_steps": 10},
            "Set checkpoint.mode: async, or save less often: raise checkpoint.every_steps (now 10)",
        ),
        ({}, "Set checkpoint.mode: async if it is sync, or save less often: raise checkpoint."),
    ],
    ids=["async", "sync", "unknown"],
)
def test_advice_on_checkpoints_is_what_the_config_leaves_to_change(report_of, saves, knob):
    training = report_of(**SOUND).training[0]
    assert checkpoint_stall(saving(training, 0.2, checkpoint=saves)).next_knob.startswith(knob)


def test_saves_that_are_always_made_are_not_to_be_made_less_often(report_of):
    training = report_of(num_steps=50, stopped_at=None).training[0]  # one save, in the last step
    assert not training.saves_ahead
    training = saving(training, 0.2, checkpoint={"every_min": 30.0})
    assert checkpoint_stall(training).outcome == "clear"  # seconds of training deserve no advice
    longer = replace(training, num_measured=10_000)
    assert checkpoint_stall(longer).next_knob.startswith(
        "No setting helps, because all checkpoints were saved at an end"
    )
    assert report_of(num_steps=400, stopped_at=None).training[0].saves_ahead


def test_the_mode_of_checkpoints_is_that_of_the_resolved_config(run_of):
    paths, rows = run_of(**SOUND)
    saves = {"mode": "async", "every_min": 30.0, "every_steps": None}
    with edited(paths.resolved_spec) as spec:
        spec["stages"]["train"]["config"]["checkpoint"] = {**saves, "keep_last": 2}
    assert report_on(paths, rows).training[0].checkpoint == saves
