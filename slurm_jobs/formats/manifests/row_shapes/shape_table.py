"""Table of the shapes of rows, each with the keys that it reads and the function that rewrites it.

Every function checks first whether the row has its shape, by its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurm_jobs.formats.manifests.keys import Meaning
from slurm_jobs.formats.manifests.row_shapes import alpaca
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues

_SHAPES: tuple[Callable[[RowValues], None], ...] = (alpaca.rewrite,)

SHAPE_KEYS: Mapping[str, Meaning] = {**alpaca.KEYS}
"""Meaning of keys that are read only in rows of a shape, by name."""


def rewrite_row(row: RowValues) -> None:
    """Rewrite a row without turns that has the shape of another tool's rows.

    Raises:
        BadRowError: it has the keys of a shape, but not its values.
    """
    if row.filled("turns"):
        return
    for rewrite in _SHAPES:
        rewrite(row)
