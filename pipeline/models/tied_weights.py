"""Tied weights: in most families the output head may be the embeddings.

Files have such a weight once. A change under one name alone would be lost there. So adapters
and 4 bits are refused for them (`finetuning.linear_layers`), and nothing that differs is dropped
here.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from slurm_jobs.base.errors import StageError


def without_tied(
    weights: Mapping[str, torch.Tensor], tied: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    """Return the weights for a file, without tied duplicates.

    Args:
        weights: Full weights, by name.
        tied: Names of tied weights, with the names of the weights they equal.

    Raises:
        StageError: a weight differs from the one it is tied to, and would be lost.
    """
    for name, of in tied.items():
        if name in weights and of in weights and not torch.equal(weights[name], weights[of]):
            message = (
                f"{name} no longer equals {of}, but the model's config ties them "
                "(tie_word_embeddings): the export would lose what it learned; set "
                "tie_word_embeddings to false in the config.json of the model that is trained"
            )
            raise StageError(message)
    return {name: weight for name, weight in weights.items() if name not in tied}
