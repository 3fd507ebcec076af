"""Features of GLM's images, from what follows from their sizes on the host.

The towers of transformers compute it on the device and read it back, and GLM-OCR's does not hand
the bounds of images on to its layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutputWithPooling


def encode_glm_patches(
    model: Any,
    pixel_values: torch.Tensor,
    image_grid_thw: torch.Tensor,
    *,
    position_ids: torch.Tensor,
    interp_indices: torch.Tensor | None = None,
    interp_weights: torch.Tensor | None = None,
    **bounds: Any,
) -> BaseModelOutputWithPooling:
    """Return the features of images, a tensor for each.

    Args:
        model: Glm4vModel, Glm46VModel or GlmOcrModel.
        pixel_values: [num_patches, values].
        image_grid_thw: int64 [num_images, 3] on the host.
        position_ids: int64 [num_patches, 2]: row and column of each patch.
        interp_indices: int64 [num_patches, 16]: learned positions around each patch. GLM-OCR has
            none.
        interp_weights: float32 [num_patches, 16]: their shares.
        bounds: What the attention of the layers takes to separate images.
    """
    tower = model.visual
    hidden = tower.patch_embed(pixel_values)
    if interp_indices is not None and interp_weights is not None:
        hidden = tower.post_conv_layernorm(hidden)
        learned = tower.embeddings.position_embedding.weight
        hidden = hidden + _weighted_rows(learned, interp_indices, interp_weights)
    turns = tower.rotary_pos_emb(hidden, position_ids)
    for block in tower.blocks:
        hidden = block(hidden, position_embeddings=turns, **bounds)
    hidden = tower.post_layernorm(hidden)
    side = tower.spatial_merge_size
    squares = hidden.view(-1, side, side, hidden.shape[-1]).permute(0, 3, 1, 2)
    features = tower.merger(tower.downsample(squares).flatten(1))
    sizes = (image_grid_thw.prod(dim=-1) // side**2).tolist()
    return BaseModelOutputWithPooling(pooler_output=features.split(sizes))


def _weighted_rows(
    table: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return weighted sums of rows, without a copy of each row, which would take 16 times more."""
    num_rows, device = indices.shape[1], indices.device
    sums = functional.embedding_bag(
        indices.flatten(),
        table.float(),
        torch.arange(0, indices.numel(), num_rows, device=device),
        per_sample_weights=weights.flatten(),
        mode="sum",
    )
    return sums.to(table.dtype)
