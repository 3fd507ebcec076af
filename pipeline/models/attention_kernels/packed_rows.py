"""Attention of rows that hold several samples, which do not see each other.

There are two implementations. `dense`: one additive mask keeps the samples apart, built once per
microbatch in the dtype of the computation, so that no layer converts it again. `varlen`: a kernel
takes the bounds of the samples and computes nothing across them (see `varlen`). Rows whose images
see later tokens of their own always have the mask (see `image_blocks`).

transformers looks up attention by a name in the config. This module replaces `sdpa` by a function
that also takes the bounds of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pipeline.models.attention_kernels.delta_net import has_delta_nets
from pipeline.models.attention_kernels.image_blocks import ImageBlocks
from pipeline.models.attention_kernels.varlen import KERNEL_MULTIPLE, attend_varlen

_ROWS = "sdpa"

AttendRows = Callable[..., tuple[torch.Tensor, Any]]
"""Signature of transformers' `sdpa_attention_forward`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Bounds of the samples in the rows of a batch."""

    bounds: torch.Tensor | None
    """int32 [num_segments + 1] on the device: bounds in the concatenated rows, from 0 to the
    number of positions. The padding of a row is a segment. None: no row has several samples."""
    lengths: tuple[int, ...]
    """Tokens of each segment, as numbers on the host."""
    dtype: torch.dtype
    """Dtype of the computation and of masks."""


def packing_of_positions(
    position_ids: torch.Tensor | None, input_ids: torch.Tensor, dtype: torch.dtype
) -> Packing:
    """Return the bounds of samples whose positions restart at 0; SYNC.

    Args:
        position_ids: int64 [num_rows, length]; None: each row has one sample.
        input_ids: [num_rows, length].
        dtype: Dtype of the computation.
    """
    if position_ids is None:
        num_rows, length = input_ids.shape
        return Packing(bounds=None, lengths=(length,) * num_rows, dtype=dtype)
    starts = (position_ids.flatten() == 0).nonzero().flatten()
    bounds = functional.pad(starts, (0, 1), value=input_ids.numel())
    lengths = tuple(int(length) for length in bounds.diff())
    return Packing(bounds=bounds.to(torch.int32), lengths=lengths, dtype=dtype)


def dense_mask(  # noqa: PLR0917 - bounds, dtype and shape are those of every mask
    bounds: torch.Tensor,
    dtype: torch.dtype,
    num_rows: int,
    length: int,
    window: int | None = None,
    image_numbers: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mask to add to scores: [num_rows, 1, length, length], 0 or minus infinity.

    Args:
        bounds: As in `Packing`.
        dtype: Dtype of the computation.
        num_rows: Rows of the batch.
        length: Tokens of each row.
        window: Number of tokens that a token sees, itself included; None: all before it.
        image_numbers: See `ImageBlocks.numbers`; None: images see no later tokens.
    """
    device = bounds.device
    places = torch.arange(num_rows * length, device=device, dtype=bounds.dtype)
    numbers = torch.searchsorted(bounds, places, right=True).view(num_rows, 1, length)
    within = torch.arange(length, device=device, dtype=bounds.dtype)
    distance = within[:, None] - within[None, :]
    is_later = distance < 0
    if image_numbers is not None:
        is_same = image_numbers[:, None, :, None] == image_numbers[:, None, None, :]
        is_later = is_later & ~(is_same & (image_numbers >= 0)[:, None, :, None])
    hidden = (numbers[..., :, None] != numbers[..., None, :]) | is_later
    if window is not None:
        hidden |= distance >= window
    # Each layer would copy rows of another alignment, also for its backward pass.
    width = -(-length // KERNEL_MULTIPLE) * KERNEL_MULTIPLE
    padded = torch.zeros(num_rows, 1, length, width, device=device, dtype=dtype)
    return padded[..., :length].masked_fill_(hidden, -torch.inf)


def attention_arguments(
    packing: Packing | None,
    text_config: Any,
    input_ids: torch.Tensor,
    *,
    uses_varlen: bool,
    images: ImageBlocks | None = None,
) -> dict[str, Any]:
    """Return arguments that make a transformers language model keep packed samples apart.

    transformers passes a mask of four dimensions through: it reads nothing from the device, and
    builds no mask.

    Args:
        packing: None: unknown, and transformers builds a mask from positions that restart. It
            cannot separate the states of gated delta nets (`delta_net`).
        text_config: Config of the language model.
        input_ids: [num_rows, length].
        uses_varlen: True if the kernel takes the bounds.
        images: Images whose tokens see later ones; None without any.
    """
    if packing is None:
        return {"attention_mask": None}
    states: dict[str, Any] = {}
    if has_delta_nets(text_config) and packing.bounds is not None:
        states["sample_lengths"] = packing.lengths
    if not takes_masks(text_config):
        return {"attention_mask": None, **states}
    windows = windows_of(text_config)
    num_rows, length = input_ids.shape
    if packing.bounds is None and images is None:
        is_whole = all(window is None or length <= window for window in windows.values())
        is_plain = is_whole and text_config._attn_implementation == _ROWS  # noqa: SLF001 - no public name
        return {"attention_mask": _no_mask(input_ids) if is_plain else None}
    if uses_varlen:
        assert images is None  # `choose_attention` takes no varlen for such models
        return {
            "attention_mask": _no_mask(input_ids),
            "cu_seq_lens_q": packing.bounds,
            "max_length_q": max(packing.lengths),
            **states,
        }
    bounds = packing.bounds
    if bounds is None:
        rows = torch.arange(num_rows + 1, dtype=torch.int32, device=input_ids.device)
        bounds = rows * length
    masks = {}
    for kind, window in windows.items():
        numbers = images.numbers if images is not None and kind in images.layers else None
        masks[kind] = dense_mask(bounds, packing.dtype, num_rows, length, window, numbers)
    return {"attention_mask": masks if len(masks) > 1 else next(iter(masks.values())), **states}


def _no_mask(input_ids: torch.Tensor) -> torch.Tensor:
    """Return an empty mask for `attend`, which means no mask.

    Its shape fits no scores, so that any other attention fails, instead of ignoring the bounds.
    """
    return torch.empty((0,) * 4, device=input_ids.device, dtype=torch.bool)


def windows_of(text_config: Any) -> dict[str, int | None]:
    """Return the number of tokens that a token sees by kind of layer; None: all before it."""
    window = getattr(text_config, "sliding_window", None)
    kinds = set(getattr(text_config, "layer_types", None) or ())
    if "sliding_attention" in kinds:
        return {"full_attention": None, "sliding_attention": window}
    in_all = text_config.model_type in _WINDOW_IN_ALL_LAYERS
    return {"full_attention": window if in_all else None}


_WINDOW_IN_ALL_LAYERS = ("mistral", "ministral3")
_TAKE_MASKS = (
    *("llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"),
    *("qwen3", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"),
    *("gemma3_text", "gemma4_text", "glm4v_text", "glm_ocr_text"),
    *("paddleocr_vl_text", "ministral3"),
)


def takes_masks(text_config: Any) -> bool:
    """Check whether a language model is known to take prepared masks and bounds.

    Others get none, and transformers builds the mask from positions that restart at 0.
    """
    return text_config.model_type in _TAKE_MASKS


def attend_rows_by(attend_rows: AttendRows) -> None:
    """Make `sdpa` call this for rows without bounds, in this whole process."""

    def attend(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        cu_seq_lens_q: torch.Tensor | None = None,
        max_length_q: int = 0,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, Any]:
        if cu_seq_lens_q is None:
            is_none = attention_mask is not None and not attention_mask.shape[-1]
            mask = None if is_none else attention_mask
            return attend_rows(module, query, key, value, mask, scaling=scaling, **options)
        if options.get("dropout"):
            message = "varlen attention has no dropout: set `attention: dense`"
            raise ValueError(message)
        # [rows, heads, length, size] to [tokens, heads, size].
        q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
        window = (-1 if sliding_window is None else sliding_window - 1, 0)
        output = attend_varlen(
            q, k, v, bounds=cu_seq_lens_q, longest=max_length_q, scale=scaling, window=window
        )
        return output.view(query.shape[0], query.shape[2], *output.shape[1:]), None

    AttentionInterface.register(_ROWS, attend)


attend_rows_by(sdpa_attention_forward)
