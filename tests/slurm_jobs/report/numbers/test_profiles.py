"""Ranks that wait for another's profile; records and spans are made up."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.rank_numbers import attempt_means
from slurm_jobs.report.steps import AttemptSteps, split_attempts, step_notes
from slurm_jobs.report.training_numbers import rates
from slurm_jobs.shared.timings import StepFile

PREPARE_S, WRITE_S = 1.5, 13.0


def attempts_of(
    records: list[np.ndarray], spans: list[Mapping[str, Any]]
) -> tuple[AttemptSteps, ...]:
    """Rank 0 has the spans."""
    timings = [
        RankTiming(
            slice_index=0,
            attempt=1,
            rank=rank,
            steps=StepFile(metadata={"num_ranks": len(records)}, steps=steps),
            spans=() if rank else tuple(spans),
        )
        for rank, steps in enumerate(records)
    ]
    return split_attempts(timings, 5, {})


@pytest.fixture
def records(fabrication) -> list[np.ndarray]:
    scenario = fabrication.Scenario()
    made = [fabrication.fabricate_steps(scenario, r, 0, 60, fabrication.CREATED) for r in (0, 1)]
    for steps in made:  # 60 ms of waiting in each step, on a device, too
        for name in ("rank_wait_s", "rank_wait_data_s", "step_s"):
            steps[name] += 0.06
        steps["device_rank_wait_s"], steps["device_step_s"] = 0.06, steps["step_s"]
        steps["start_unix_s"] += 0.06 * np.arange(len(steps))
    return made


def profiled(records: list[np.ndarray]) -> tuple[list[np.ndarray], list[Mapping[str, Any]]]:
    """Rank 0 prepares before step 20 and writes before step 23; rank 1 waits in these steps."""
    found, spans = [steps.copy() for steps in records], []
    for name, before, took_s in (
        ("profile_prepare", 20, PREPARE_S),
        ("profile_write", 23, WRITE_S),
    ):
        start = float(found[0]["start_unix_s"][before])
        spans.append({"name": name, "start_unix_s": start, "duration_s": took_s})
        found[0]["start_unix_s"][before:] += took_s
        found[1]["start_unix_s"][before + 1 :] += took_s
        for field in ("rank_wait_data_s", "rank_wait_s", "step_s", "device_rank_wait_s",
                      "device_step_s"):  # fmt: skip
            found[1][field][before] += took_s
    return found, spans


def test_ranks_that_wait_for_a_profile_are_neither_slow_nor_waiting_for_a_slow_one(
    records: list[np.ndarray],
) -> None:
    plain, (found, spans) = attempts_of(records, []), profiled(records)
    with_profile, as_it_was = attempts_of(found, spans), attempts_of(found, [])
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


def test_a_profile_of_another_rank_sets_no_clock(records: list[np.ndarray]) -> None:
    found, spans = profiled(records)
    assert step_notes(attempts_of(found, spans)) == ()


def test_a_step_that_had_begun_well_before_the_profile_sets_no_clock(
    records: list[np.ndarray],
) -> None:
    short = [steps[:30] for steps in records]  # little time, beside which a part of a step counts
    found, spans = profiled(short)
    step_s = float(short[1]["step_s"][20])
    later = [{**span, "start_unix_s": span["start_unix_s"] + 0.5 * step_s} for span in spans]
    assert step_notes(attempts_of(found, later)) == ()
    elsewhere = [{**span, "start_unix_s": span["start_unix_s"] - 10 * step_s} for span in later]
    assert "the clock was set" in " ".join(step_notes(attempts_of(found, elsewhere)))


def test_other_waits_of_these_steps_stay_and_so_do_records_without_a_profile(
    records: list[np.ndarray],
) -> None:
    found, spans = profiled(records)
    found[1]["rank_wait_s"][40] += 2.0
    found[1]["step_s"][40] += 2.0
    (attempt,) = attempts_of(found, spans)
    assert attempt.records[1]["rank_wait_s"][40] == pytest.approx(2.06)
    assert attempt.records[1]["rank_wait_s"][23] == pytest.approx(0.06, abs=1e-3)
    assert attempt.records[0] is found[0]
