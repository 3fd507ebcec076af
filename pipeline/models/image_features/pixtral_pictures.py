"""Features of the images of Pixtral's vision tower, each of which attends to itself alone.

transformers builds a mask of all patches with all others, or counts the patches of images on the
device.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.pixtral.modeling_pixtral import generate_block_attention_mask


def encode_pixtral_pictures(
    model: Any,
    pixel_values: torch.Tensor,
    image_sizes: torch.Tensor,
    *,
    position_ids: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int | None = None,
    **how: Any,
) -> BaseModelOutputWithPooling:
    """Return the features of all images.

    Args:
        model: LightOnOcrModel.
        pixel_values: [num_images, 3, height, width], padded.
        image_sizes: int64 [num_images, 2] on the host: height and width of each in pixels.
        position_ids: int64 [num_patches, 2]: row and column of each patch.
        cu_seqlens: Bounds of the images in the concatenated patches.
        max_seqlen: Patches of the largest image.
        how: What else the attention of the layers takes to separate images.
    """
    tower, sizes = model.vision_encoder, image_sizes.tolist()
    side = tower.patch_size
    patches = [
        patches[:, : height // side, : width // side].flatten(1).T
        for patches, (height, width) in zip(tower.patch_conv(pixel_values), sizes, strict=True)
    ]
    hidden = tower.ln_pre(torch.cat(patches)[None])
    turns = tower.patch_positional_embedding(hidden, position_ids)
    mask = None
    if tower.config._attn_implementation == "eager":  # noqa: SLF001 - no public name
        mask = generate_block_attention_mask([len(image) for image in patches], hidden)
    output = tower.transformer(
        hidden,
        attention_mask=mask,
        position_embeddings=turns,
        cu_seq_lens_q=cu_seqlens,
        max_length_q=max_seqlen,
        **how,
    )
    features = model.vision_projection(output.last_hidden_state[0], sizes)
    return BaseModelOutputWithPooling(pooler_output=features)
