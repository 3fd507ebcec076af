"""Epochs are projected only where a start of the job comes to a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from slurm_jobs.report.projection import project_epochs


def test_no_epoch_is_projected_where_the_time_limit_leaves_no_time_for_steps() -> None:
    unknown = SimpleNamespace(value=None)
    inputs: Any = {
        "prep": SimpleNamespace(after=[]),
        "train": SimpleNamespace(after=["prep"], resources={}),
    }
    stage: Any = SimpleNamespace(
        name="train",
        queue_wait_median_s=unknown,
        queue_wait_max_s=unknown,
        time_limit_s=SimpleNamespace(value=20.0),
    )
    numbers: Any = SimpleNamespace(
        stage="train",
        is_earlier=False,
        pace=SimpleNamespace(num_phases=1, samples_per_step=4.0, warmup_s=0.0),
        start_s=30.0,
    )
    found, notes = project_epochs(
        inputs, [stage], [numbers], None, num_epochs=2, num_samples={"prep": 100}
    )
    assert found == ()
    assert len(notes) == 1
    assert notes[0].startswith("train: 2 epochs are not projected: its time limit leaves no time")


def test_a_run_without_a_training_is_told_that_it_has_no_epochs() -> None:
    found, notes = project_epochs({}, [], [], None, num_epochs=3, num_samples={})
    assert found == ()
    assert notes == ("3 epochs are not projected: no training has recorded steps",)
