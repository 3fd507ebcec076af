"""Records of steps in memory: repeated work, wall clocks, profiles, and the device's own time."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import DEVICE_FIELDS
from slurm_jobs.report.numbers.trainings.device_times import (
    device_notes,
    device_timeline,
    has_device_times,
)
from slurm_jobs.report.numbers.trainings.rank_numbers import attempt_means
from slurm_jobs.report.numbers.trainings.training_rates import rates
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.report.steps.step_notes import step_notes
from tests.slurm_jobs.report.builders import attempts_of, make_steps, rank_timing, seconds_of


def notes_of(steps, spans=()):
    return step_notes(attempts_of(rank_timing(1, 0, steps, spans, num_ranks=1)))


@pytest.fixture
def steps():
    return make_steps(60)


def interrupted(steps, name, before, duration_s):
    """Have a rank do something else before a step; return the span that it writes of that."""
    start_unix_s = float(steps["start_unix_s"][before])
    steps["start_unix_s"][before:] += duration_s
    return {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s}


def test_a_profile_that_is_written_between_two_steps_sets_no_clock(steps):
    spans = [
        interrupted(steps, "profile_prepare", 20, 1.5),
        interrupted(steps, "profile_write", 23, 13.0),
    ]
    assert notes_of(steps, spans) == ()
    assert "wall clock" in notes_of(steps)[0]  # where nothing says what it was


def test_a_clock_that_was_set_is_noted_together_with_a_profile(steps):
    spans = [interrupted(steps, "profile_write", 20, 13.0)]
    steps["start_unix_s"][40:] -= 100.0
    (note,) = notes_of(steps, spans)
    assert "the clock was set" in note


def test_spans_that_lie_within_steps_explain_no_gap(steps):
    interrupted(steps, "", 30, 13.0)
    start = float(steps["start_unix_s"][10])
    inside = {"name": "checkpoint", "start_unix_s": start, "duration_s": 0.4}
    (note,) = notes_of(steps, [inside])
    assert "gaps between steps" in note


@pytest.mark.parametrize(
    ("second", "begun", "repeated", "abandoned"),
    [
        ("ab", 3, [3, 4, 5, 6, 7, 8], []),
        ("ab2", 3, [], [3, 4, 5, 6, 7, 8]),
        ("ab2", 1, [1, 2], [3, 4, 5, 6, 7, 8]),
        ("ab2", 5, [5, 6, 7, 8], []),  # went on from a checkpoint of that phase all the same
    ],
)
def test_only_the_steps_from_a_changed_phase_on_are_other_work(second, begun, repeated, abandoned):
    steps, timings = make_steps(9), []
    for attempt, own, last in ((1, steps, "ab"), (2, steps[begun:7], second)):
        phases = [{"first_step": 0, "training": "a"}, {"first_step": 3, "training": last}]
        said = {"num_ranks": 1, "training": last, "phases": phases}
        timings.append(rank_timing(attempt, 0, own, **said))
    first, _ = split_attempts(timings, 0, {1: "one", 2: "two"})
    assert first.kept(0)["step"].tolist() == list(range(begun))
    assert first.repeated(0)["step"].tolist() == repeated
    assert first.abandoned(0)["step"].tolist() == abandoned


def test_steps_whose_records_are_lost_between_two_attempts_are_noted():
    later = make_steps(30, first=170)
    later["start_unix_s"] += 1000
    timings = [
        rank_timing(attempt, 0, steps, num_ranks=1, training="one")
        for attempt, steps in ((1, make_steps(100)), (3, later))
    ]
    (note,) = step_notes(attempts_of(*timings))
    assert note == (
        "attempt 3: begins at step 170, and of the 70 steps before it there are no records: they "
        "are in no rate"
    )


@pytest.mark.parametrize(
    ("places", "num", "is_told"),
    [
        pytest.param(slice(50, 60), 60, True, id="last"),
        pytest.param(slice(20, 30), 60, False, id="earlier"),
        pytest.param(slice(0), 60, False, id="none"),
        pytest.param(np.arange(60) % 10 != 9, 58, False, id="some steps alone write it"),
    ],
)
def test_a_loss_that_is_nan_at_the_end_is_noted(steps, places, num, is_told):
    steps["loss"][places] = np.nan
    notes = notes_of(steps[:num])
    assert len(notes) == is_told
    assert all("the loss of the last 10 steps is not a number" in note for note in notes)


# Ranks that wait for another's profile.

PREPARE_S, WRITE_S = 1.5, 13.0


def both_ranks(records, spans):
    """Rank 0 has the spans."""
    return attempts_of(
        *(
            rank_timing(1, rank, steps, () if rank else spans, num_ranks=len(records))
            for rank, steps in enumerate(records)
        )
    )


@pytest.fixture
def records():
    made = [make_steps(60, rank=rank, num_ranks=2) for rank in (0, 1)]
    for steps in made:  # 60 ms of waiting in each step, on a device, too
        for name in ("rank_wait_s", "rank_wait_data_s", "step_s"):
            steps[name] += 0.06
        steps["device_rank_wait_s"], steps["device_step_s"] = 0.06, steps["step_s"]
        steps["start_unix_s"] += 0.06 * np.arange(len(steps))
    return made


def profiled(records):
    """Rank 0 prepares before step 20 and writes before step 23; rank 1 waits in these steps."""
    found, spans = [steps.copy() for steps in records], []
    waits = ["rank_wait_data_s", "rank_wait_s", "step_s", "device_rank_wait_s", "device_step_s"]
    for name, before, took_s in (
        ("profile_prepare", 20, PREPARE_S),
        ("profile_write", 23, WRITE_S),
    ):
        spans.append(interrupted(found[0], name, before, took_s))
        found[1]["start_unix_s"][before + 1 :] += took_s
        for field in waits:
            found[1][field][before] += took_s
    return found, spans


def test_ranks_that_wait_for_a_profile_are_neither_slow_nor_waiting(records):
    plain, (found, spans) = both_ranks(records, []), profiled(records)
    with_profile, as_it_was = both_ranks(found, spans), both_ranks(found, [])
    for kind in ("rank_wait", "step", "own"):
        (wanted,), (had,), (raw,) = map(attempt_means, (plain, with_profile, as_it_was))
        assert np.allclose(had.means[kind], wanted.means[kind], atol=1e-3)
        assert kind == "own" or raw.means[kind][1] > wanted.means[kind][1] + 0.2
    speeds = [rates(each)["tokens_per_s"].value for each in (plain, with_profile, as_it_was)]
    assert speeds[1] == pytest.approx(speeds[0], rel=1e-3)
    assert speeds[2] < 0.8 * speeds[0]
    assert with_profile[0].records[1]["device_step_s"].max() < WRITE_S
    first = with_profile[0].records[1]["rank_wait_data_s"]
    assert first == pytest.approx([0.06] * len(first), abs=1e-3)


def test_a_profile_of_another_rank_sets_no_clock(records):
    assert step_notes(both_ranks(*profiled(records))) == ()


def test_a_step_that_had_begun_well_before_the_profile_sets_no_clock(records):
    short = [steps[:30] for steps in records]  # little time, beside which a part of a step counts
    found, spans = profiled(short)
    step_s = float(short[1]["step_s"][20])
    later = [{**span, "start_unix_s": span["start_unix_s"] + 0.5 * step_s} for span in spans]
    assert step_notes(both_ranks(found, later)) == ()
    elsewhere = [{**span, "start_unix_s": span["start_unix_s"] - 10 * step_s} for span in later]
    assert "the clock was set" in " ".join(step_notes(both_ranks(found, elsewhere)))


def test_other_waits_stay_and_so_do_records_without_a_profile(records):
    found, spans = profiled(records)
    found[1]["rank_wait_s"][40] += 2.0
    found[1]["step_s"][40] += 2.0
    (attempt,) = both_ranks(found, spans)
    assert attempt.records[1]["rank_wait_s"][40] == pytest.approx(2.06)
    assert attempt.records[1]["rank_wait_s"][23] == pytest.approx(0.06, abs=1e-3)
    assert attempt.records[0] is found[0]


# The device's own time.


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
