"""Features of the tiles of SmolVLM and Idefics3, without the search for padding.

transformers looks for tiles and patches that are padding, and reads back from the device whether
there are any. There are none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling


def encode_tiles(model: Any, pixel_values: torch.Tensor) -> BaseModelOutputWithPooling:
    """Return the features of tiles, none of which is padding.

    Args:
        model: Idefics3Model or SmolVLMModel.
        pixel_values: [1, num_tiles, 3, height, width].
    """
    tiles = pixel_values[0].to(model.dtype)
    hidden = model.vision_model(pixel_values=tiles, return_dict=True).last_hidden_state
    return BaseModelOutputWithPooling(pooler_output=model.connector(hidden))


def encode_whole_tiles(tower: Any) -> None:
    """Make the vision tower of SmolVLM or Idefics3 skip the patch mask if it gets none.

    transformers creates a mask of ones, and reads back from the device whether all are.
    """
    tower.forward = functools.partial(_encode, tower, tower.forward)


def _encode(
    tower: Any,
    plain: Callable[..., Any],
    pixel_values: torch.Tensor,
    patch_attention_mask: torch.Tensor | None = None,
    **options: Any,
) -> Any:
    if patch_attention_mask is not None:
        return plain(pixel_values, patch_attention_mask=patch_attention_mask, **options)
    num_tiles, _, height, width = pixel_values.shape
    grid = (num_tiles, height // tower.patch_size, width // tower.patch_size)
    whole = torch.ones(grid, dtype=torch.bool, device=pixel_values.device)
    hidden = tower.embeddings(pixel_values=pixel_values, patch_attention_mask=whole)
    hidden = tower.encoder(inputs_embeds=hidden, attention_mask=None).last_hidden_state
    return BaseModelOutputWithPooling(last_hidden_state=tower.post_layernorm(hidden))
