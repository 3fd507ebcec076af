"""Losses of the manifests of a mixed data set, in the cells of a table. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.values.training_model import LossOfManifest

COLUMNS = ("manifest", "learned tokens", "share", "loss, first tenth", "loss, last tenth")
"""A tenth of the steps."""


def table_rows(losses: Sequence[LossOfManifest]) -> list[tuple[str, ...]]:
    """Return a row for each manifest, with the cells of `COLUMNS`."""
    num_targets = max(1, sum(loss.num_targets for loss in losses))
    return [
        (
            loss.name,
            f"{loss.num_targets:,}",
            units.percent(loss.num_targets / num_targets),
            _loss(loss.first_loss),
            _loss(loss.last_loss),
        )
        for loss in losses
    ]


def _loss(loss: float | None) -> str:
    return units.NOT_KNOWN if loss is None else units.significant(loss)
