"""Losses by manifest in a report, over attempts and resumes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slurm_jobs.formats.timings.manifest_losses import MANIFESTS_KEY, manifest_fields
from slurm_jobs.report.numbers.trainings.losses_of_manifests import losses_of_manifests
from slurm_jobs.report.values.training_model import LossOfManifest


def attempt_of(names: list[str], *steps: dict[str, tuple[float, int]]) -> Any:
    """Return the steps of one attempt: mean and number of targets by name."""
    records = np.zeros(len(steps), manifest_fields(len(names)))
    for record, values in zip(records, steps, strict=True):
        for number, name in enumerate(names):
            mean, num = values.get(name, (np.nan, 0))
            record[f"manifest_{number}_loss"], record[f"manifest_{number}_targets"] = mean, num
    rank = SimpleNamespace(header={MANIFESTS_KEY: names})
    return SimpleNamespace(longest=0, ranks=[rank], records=[records], kept=lambda _: records)


def test_means_are_weighted_by_targets_and_follow_the_name_over_a_resume() -> None:
    first = attempt_of(["a", "b"], {"a": (4.0, 10)}, *[{"a": (9.0, 1), "b": (5.0, 2)}] * 9)
    steps = [{"b": (3.0, 1)}] * 8 + [{"b": (1.0, 30)}, {"b": (2.0, 10)}]
    second = attempt_of(["b", "a"], *steps)
    assert losses_of_manifests([first, second]) == (
        LossOfManifest(name="b", num_targets=66, first_loss=5.0, last_loss=1.25),
        LossOfManifest(name="a", num_targets=19, first_loss=pytest.approx(49 / 11), last_loss=None),
    )


def test_a_step_skipped_under_fp16_does_not_count_in_the_mean() -> None:
    attempt = attempt_of(["a", "b"], {"a": (np.inf, 5), "b": (2.0, 5)})
    losses = {loss.name: loss.first_loss for loss in losses_of_manifests([attempt])}
    assert losses == {"a": None, "b": 2.0}


def test_nothing_is_said_of_records_without_losses_by_manifest() -> None:
    assert losses_of_manifests([attempt_of(["a", "b"], {}), attempt_of([], {})]) == ()
