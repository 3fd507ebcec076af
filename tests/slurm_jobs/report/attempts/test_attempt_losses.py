"""What attempts cost that were stopped or killed, from the times of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import StepFile
from slurm_jobs.report.attempts.attempt_losses import loss_text, stage_loss, with_steps
from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.report.values.attempt_model import StageLoss
from slurm_jobs.run.attempt_history import AttemptEntry
from tests.slurm_jobs.report.fabricate_run import STEP_DTYPE


def entry(attempt: int, start_s: float, end_s: float | None, **values: Any) -> AttemptEntry:
    ending = "running" if end_s is None else "time limit"
    return AttemptEntry(
        **{
            "stage": "train", "slice_index": 0, "attempt": attempt, "job_id": "7",
            "restart": attempt - 1, "node": "v1",
            "start_unix_s": start_s, "end_unix_s": end_s, "ending": ending, "state": "",
            "reason": "", **values,
        }
    )  # fmt: skip


def timing(attempt: int, first: int, num: int, start_s: float) -> RankTiming:
    """Steps of 2 s each, from number `first` on."""
    steps = np.zeros(num, STEP_DTYPE)
    steps["step"] = np.arange(first, first + num)
    steps["start_unix_s"] = start_s + 2.0 * np.arange(num)
    steps["step_s"] = 2.0
    file = StepFile(metadata={"num_ranks": 1}, steps=steps)
    return RankTiming(slice_index=0, attempt=attempt, rank=0, steps=file, spans=())


def test_a_later_start_costs_its_start_up_and_the_steps_it_repeats() -> None:
    entries = [
        entry(1, 0.0, 40.0, has_stopped=True),
        entry(2, 50.0, 100.0, requeue_wait_s=10.0),
        entry(3, 105.0, 109.0, requeue_wait_s=5.0),  # ended before its first step
        entry(4, 110.0, None, requeue_wait_s=1.0),
    ]
    timings = [timing(1, 0, 10, 20.0), timing(2, 8, 10, 60.0), timing(4, 18, 5, 125.0)]
    done = with_steps(entries, split_attempts(timings, 0, {}))
    assert [e.num_steps for e in done] == [10, 10, 0, 5]
    assert [e.startup_again_s for e in done] == [0.0, 10.0, None, 15.0]
    assert [e.repeated_s for e in done] == [4.0, 20.0, 4.0, 0.0]  # the second hung, and was killed
    assert [e.lost_s for e in done] == [4.0, 30.0, 4.0, 15.0]
    lost = stage_loss(done, now_unix_s=140.0)
    assert lost == StageLoss(
        startup_again_s=25.0, repeated_s=28.0, requeue_wait_s=16.0, whole_s=124.0 + 16.0
    )
    assert loss_text(lost) == (
        "69.0 s of 2 min 20 s (49 %): repeated work 28.0 s, start-up again 25.0 s, requeue wait "
        "16.0 s"
    )


def test_without_steps_an_attempt_keeps_what_its_end_says() -> None:
    entries = [entry(1, 0.0, 40.0, repeated_s=40.0), entry(2, 41.0, 60.0, ending="completed")]
    assert with_steps(entries, ()) == tuple(entries)
    assert stage_loss(entries, now_unix_s=99.0).share == pytest.approx(40 / 59)
