"""Features of Gemma 4's images, which are padded to one number of patches."""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from pipeline.models.layouts.padded_patches import PADDING


def encode_padded_images(
    model: Any,
    pixel_values: torch.Tensor,
    image_position_ids: torch.Tensor,
    image_grids: torch.Tensor,
) -> BaseModelOutputWithPooling:
    """Return the features of padded images; transformers would read back which are padding.

    Args:
        model: Gemma4Model.
        pixel_values: [num_images, num_patches, values].
        image_position_ids: int64 [num_images, num_patches, 2].
        image_grids: int64 [num_images, 2] on the host: rows and columns of patches.
    """
    tower = model.vision_tower
    side = tower.config.pooling_kernel_size
    is_padding = (image_position_ids == PADDING).all(dim=-1)
    embeddings = tower.patch_embedder(pixel_values, image_position_ids, is_padding)
    num_patches = pixel_values.shape[1]
    mask = None
    if int(image_grids.prod(dim=1).min()) < num_patches:
        mask = (~is_padding)[:, None, None, :].expand(-1, 1, num_patches, -1)
    encoded = tower.encoder(
        inputs_embeds=embeddings, attention_mask=mask, pixel_position_ids=image_position_ids
    )
    pooled = []
    for patches, (rows, columns) in zip(
        encoded.last_hidden_state, image_grids.tolist(), strict=True
    ):
        squares = patches[: rows * columns].view(rows // side, side, columns // side, side, -1)
        pooled.append(squares.float().mean(dim=(1, 3)).flatten(0, 1))
    # As in transformers, in its precisions.
    features = torch.cat(pooled).to(embeddings.dtype).float() * tower.pooler.root_hidden_size
    if tower.config.standardize:
        features = (features - tower.std_bias.float()) * tower.std_scale.float()
    projected = model.embed_vision(inputs_embeds=features.to(embeddings.dtype))
    return BaseModelOutputWithPooling(pooler_output=projected)
