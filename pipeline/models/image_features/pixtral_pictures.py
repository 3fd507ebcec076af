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
    tower: str,
    projector: str,
    position_ids: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int | None = None,
    **how: Any,
) -> BaseModelOutputWithPooling:
    """Return the features of all images.

    Args:
        model: LightOnOcrModel or Mistral3Model.
        pixel_values: [num_images, 3, height, width], padded.
        image_sizes: int64 [num_images, 2] on the host: height and width of each in pixels.
        tower: Name of the vision tower in the model.
        projector: Name of the projector in the model.
        position_ids: int64 [num_patches, 2]: row and column of each patch.
        cu_seqlens: Bounds of the images in the concatenated patches.
        max_seqlen: Patches of the largest image.
        how: What else the attention of the layers takes to separate images.
    """
    encoder, sizes = getattr(model, tower), image_sizes.tolist()
    side = encoder.patch_size
    patches = [
        patches[:, : height // side, : width // side].flatten(1).T
        for patches, (height, width) in zip(encoder.patch_conv(pixel_values), sizes, strict=True)
    ]
    hidden = encoder.ln_pre(torch.cat(patches)[None])
    turns = encoder.patch_positional_embedding(hidden, position_ids)
    mask = None
    if encoder.config._attn_implementation == "eager":  # noqa: SLF001 - no public name
        mask = generate_block_attention_mask([len(image) for image in patches], hidden)
    output = encoder.transformer(
        hidden,
        attention_mask=mask,
        position_embeddings=turns,
        cu_seq_lens_q=cu_seqlens,
        max_length_q=max_seqlen,
        **how,
    )
    features = getattr(model, projector)(output.last_hidden_state[0], sizes)
    return BaseModelOutputWithPooling(pooler_output=features)
