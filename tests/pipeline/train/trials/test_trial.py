"""What the choice of a trial depends on."""

from __future__ import annotations

from pipeline.train.trials.trial import _TRAINED
from slurm_jobs.formats.configs.train import MAY_CHANGE


def test_what_a_choice_depends_on_binds_checkpoints_too():
    """Or training would go on from one with an order of samples that it was not made with."""
    assert set(_TRAINED).isdisjoint(MAY_CHANGE)
