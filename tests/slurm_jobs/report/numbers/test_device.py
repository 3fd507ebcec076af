"""The device's own time in words; records are made up."""

import numpy as np
import pytest

from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.steps import split_attempts
from slurm_jobs.report.training_numbers import device_notes, device_timeline, has_device_times
from slurm_jobs.shared.timings import DEVICE_FIELDS, StepFile


@pytest.fixture
def attempts_of(fabrication):
    def make(changes, timing="events"):
        scenario = fabrication.Scenario(num_ranks=1)
        steps = fabrication.fabricate_steps(scenario, 0, 0, 40, fabrication.CREATED)
        for name, value in changes.items():
            steps[name] = value
        file = StepFile(metadata={"num_ranks": 1, "timing": timing}, steps=steps)
        timings = [RankTiming(slice_index=0, attempt=1, rank=0, steps=file, spans=())]
        return split_attempts(timings, 5, {})

    return make


def test_records_of_a_cpu_say_nothing_of_a_device(attempts_of):
    attempts = attempts_of({})
    assert device_notes(attempts) == ()
    assert not has_device_times(attempts)


def test_the_mean_step_on_the_device_is_told_in_shares_with_mfu(attempts_of):
    times = dict.fromkeys(DEVICE_FIELDS, 0.0) | {
        "device_data_wait_s": 0.1,
        "device_forward_s": 0.5,
        "device_backward_s": 1.2,
        "device_step_s": 2.0,
        "mfu": 0.375,
    }
    attempts = attempts_of(times)
    attempts[0].records[0]["device_step_s"][-1] = np.nan
    # The device had not ended that step.
    step, mfu = device_notes(attempts)
    assert step.startswith("attempt 1: on the device a mean step takes 2.00 s: data wait 5.0 %, ")
    assert "forward 25 %, backward 60 %" in step
    assert "the rest 10 %" in step
    assert mfu.startswith("attempt 1: MFU 38 %")
    assert has_device_times(attempts)


def test_mfu_is_that_of_all_operations_in_all_the_time_that_trained(attempts_of):
    """Of 30 steps that take 1 s and 10 that take 11 s, 1 s each of them a checkpoint."""
    long = np.arange(40) % 4 == 3
    attempts = attempts_of(
        {
            "step_s": np.where(long, 12.0, 1.0),
            "checkpoint_s": np.where(long, 1.0, 0.0),
            "evaluation_s": 0.0,
            "mfu": np.where(long, 0.44 / 11, 0.44),
        }
    )
    measured = np.where(long, 11.0, 1.0)[5:]
    share = 0.44 * len(measured) / measured.sum()
    (mfu,) = device_notes(attempts)
    assert mfu.startswith(f"attempt 1: MFU {100 * share:.0f} %")


def test_an_attempt_that_was_timed_with_waits_is_called_so(attempts_of):
    (note,) = device_notes(attempts_of({}, timing="sync"))
    assert "`timing: sync`" in note
    assert "not comparable" in note


def test_the_timeline_of_a_device_adds_up_to_its_step_and_tells_waits_from_work(attempts_of):
    times = {
        "device_forward_s": 0.1,
        "device_backward_s": 0.2,
        "device_optimizer_s": 0.02,
        "device_host_to_device_s": 0.01,
        "device_data_wait_s": 0.05,
        "device_rank_wait_s": 0.03,
        "device_step_s": 0.5,
    }
    attempts = attempts_of(times)
    attempts[0].records[0]["device_step_s"][20:] = np.nan  # not read yet: they say nothing
    timeline = device_timeline(attempts)
    found = {share.name: share.seconds for share in timeline}
    assert found["computing"] == pytest.approx(0.32)
    assert found["copying from the host"] == pytest.approx(0.01)
    assert found["waiting for other ranks"] == pytest.approx(0.03)
    assert found["idle, waiting for data"] == pytest.approx(0.05)
    assert sum(found.values()) == pytest.approx(0.5)
    assert sum(share.share for share in timeline) == pytest.approx(1)


def test_without_a_device_there_is_no_timeline(attempts_of):
    assert device_timeline(attempts_of({})) == ()
