"""The device's own time in step records: shares, MFU, and a timeline that adds up."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import DEVICE_FIELDS
from slurm_jobs.report.numbers.trainings.device_times import (
    device_notes,
    device_timeline,
    has_device_times,
)
from tests.slurm_jobs.report.builders import attempts_of, make_steps, rank_timing, seconds_of


def on_device(timing="events", **changes):
    steps = make_steps(40)
    for name, value in changes.items():
        steps[name] = value
    return attempts_of(rank_timing(1, 0, steps, num_ranks=1, timing=timing))


def test_records_of_a_cpu_say_nothing_of_a_device():
    attempts = on_device()
    assert device_notes(attempts) == device_timeline(attempts) == ()
    assert not has_device_times(attempts)


def test_the_mean_step_on_the_device_is_shown_in_shares_with_mfu():
    times = dict.fromkeys(DEVICE_FIELDS, 0.0) | {
        "device_data_wait_s": 0.1,
        "device_forward_s": 0.5,
        "device_backward_s": 1.2,
        "device_step_s": 2.0,
    }
    attempts = on_device(**times, mfu=0.375)
    # The device had not ended that step.
    attempts[0].records[0]["device_step_s"][-1] = np.nan
    step, mfu = device_notes(attempts)
    assert step.startswith("attempt 1: on the device a mean step takes 2.00 s: data wait 5.0 %, ")
    assert "forward 25 %, backward 60 %" in step
    assert "the rest 10 %" in step
    assert mfu.startswith("attempt 1: MFU 38 %")
    assert has_device_times(attempts)


def test_mfu_is_that_of_all_operations_in_all_the_time_that_trained():
    """Of 30 steps that take 1 s and 10 that take 11 s, 1 s each of them a checkpoint."""
    long = np.arange(40) % 4 == 3
    attempts = on_device(
        step_s=np.where(long, 12.0, 1.0),
        checkpoint_s=np.where(long, 1.0, 0.0),
        evaluation_s=0.0,
        mfu=np.where(long, 0.44 / 11, 0.44),
    )
    measured = np.where(long, 11.0, 1.0)[5:]
    share = 0.44 * len(measured) / measured.sum()
    (mfu,) = device_notes(attempts)
    assert mfu.startswith(f"attempt 1: MFU {100 * share:.0f} %")


def test_an_attempt_that_was_timed_with_waits_is_called_so():
    (note,) = device_notes(on_device(timing="sync"))
    assert "`timing: sync`" in note
    assert "not comparable" in note


def test_the_timeline_of_a_device_adds_up_and_separates_waits_from_work():
    attempts = on_device(
        device_forward_s=0.1,
        device_backward_s=0.2,
        device_optimizer_s=0.02,
        device_host_to_device_s=0.01,
        device_data_wait_s=0.05,
        device_rank_wait_s=0.03,
        device_step_s=0.5,
    )
    attempts[0].records[0]["device_step_s"][20:] = np.nan  # not read yet: they say nothing
    timeline = device_timeline(attempts)
    found = seconds_of(timeline)
    assert found["computing"] == pytest.approx(0.32)
    assert found["copying from the host"] == pytest.approx(0.01)
    assert found["waiting for other ranks"] == pytest.approx(0.03)
    assert found["idle, waiting for data"] == pytest.approx(0.05)
    assert sum(found.values()) == pytest.approx(0.5)
    assert sum(share.share for share in timeline) == pytest.approx(1)
