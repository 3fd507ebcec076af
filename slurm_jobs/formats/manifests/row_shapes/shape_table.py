"""Table of the shapes of rows, each with the keys that it reads and the function that rewrites it.

Every function checks first whether the row has its shape, by its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurm_jobs.formats.manifests.keys import Meaning
from slurm_jobs.formats.manifests.row_shapes import (
    alpaca,
    answer_lists,
    conversation,
    problem_solution,
    prompt_completion,
)
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues

_SHAPES: tuple[Callable[[RowValues], None], ...] = (
    conversation.rewrite,
    prompt_completion.rewrite,
    problem_solution.rewrite,
    alpaca.rewrite,
    answer_lists.rewrite,  # last: whether a row has a question decides which answer is taken
)

SHAPE_KEYS: Mapping[str, Meaning] = {
    **conversation.KEYS,
    **problem_solution.KEYS,
    **alpaca.KEYS,
    **answer_lists.KEYS,
}
"""Meaning of keys that are read only in rows of a shape, by name."""


def rewrite_row(row: RowValues) -> None:
    """Rewrite a row without turns that has the shape of another tool's rows.

    Raises:
        BadRowError: it has the keys of a shape, but not its values.
    """
    for rewrite in _SHAPES:
        if row.filled("turns"):
            return
        rewrite(row)
