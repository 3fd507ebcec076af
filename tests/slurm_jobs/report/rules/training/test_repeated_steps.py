"""Steps that were done twice, and advice that no other rule contradicts."""

from __future__ import annotations

import pytest

from slurm_jobs.report.rules.training.repeated_steps import repeated_steps
from tests.slurm_jobs.report.rules.training.saves import saving

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


@pytest.mark.parametrize(
    ("share", "knob"), [(0.01, "Save more often (checkpoint."), (0.2, "Give the job more time")]
)
def test_no_two_rules_advise_saving_more_and_less_often(report_of, share, knob):
    training = report_of(**SOUND | {"stopped_at": 200, "resumed_at": 150}).training[0]
    assert repeated_steps(saving(training, share)).next_knob.startswith(knob)
