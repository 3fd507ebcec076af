"""Weights that are others by another name: in most families the output head may be the embeddings.

Files have such a weight once. What is changed by one of its names alone would be lost there: so
adapters and 4 bits are refused on them (`linear_layers`), and here nothing that differs is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from slurm_jobs.common.errors import StageError


def without_tied(
    weights: Mapping[str, torch.Tensor], tied: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    """The weights as files have them.

    Args:
        weights: Whole ones, by name.
        tied: Names of weights that are others by another name, and these others'.

    Raises:
        StageError: one is not what it is tied to, and would be lost.
    """
    for name, of in tied.items():
        if name in weights and of in weights and not torch.equal(weights[name], weights[of]):
            message = (
                f"{name} is not {of} any more, and the model's config ties them "
                "(tie_word_embeddings): the export would lose what was learned of it; set "
                "tie_word_embeddings to false in the config.json of the model that is trained"
            )
            raise StageError(message)
    return {name: weight for name, weight in weights.items() if name not in tied}
