"""Waits for the profile that another rank wrote are taken out, and no other waits."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_jobs.report.numbers.trainings.rank_numbers import attempt_means
from slurm_jobs.report.numbers.trainings.training_rates import rates
from tests.slurm_jobs.report.steps.profiled_steps import WRITE_S, both_ranks, profiled, records

__all__ = ["records"]


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


def test_other_waits_stay_and_so_do_records_without_a_profile(records):
    found, spans = profiled(records)
    found[1]["rank_wait_s"][40] += 2.0
    found[1]["step_s"][40] += 2.0
    (attempt,) = both_ranks(found, spans)
    assert attempt.records[1]["rank_wait_s"][40] == pytest.approx(2.06)
    assert attempt.records[1]["rank_wait_s"][23] == pytest.approx(0.06, abs=1e-3)
    assert attempt.records[0] is found[0]
