"""Attention of vision towers within images of varying size, and within windows of them.

Images of Qwen's vision towers, and the windows into which Qwen2.5-VL cuts them, are segments.
transformers loops over them, one call each; here segments of equal length are one call.

transformers looks up attention by a name in the config. Vision towers pass the bounds of images
only to an implementation whose name contains `flash`, so this module adds one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface

from pipeline.models.attention_kernels.varlen import attend_varlen

_PICTURES = "flash_by_picture"


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureSegments:
    """Segments of the patches of a batch, for the attention of a vision tower."""

    runs: tuple[tuple[int, int], ...]
    """Number of segments of each length, and the length; in the order of `order`."""
    order: torch.Tensor | None
    """int64 [num_patches] on the device: patches sorted by the length of their segment; None:
    unchanged."""
    inverse: torch.Tensor | None
    """int64 [num_patches] on the device: position of each patch in `order`."""


def picture_segments(
    bounds: torch.Tensor, move: Callable[[torch.Tensor], torch.Tensor]
) -> PictureSegments:
    """Return the grouping of segments in which those of equal length are one call.

    Args:
        bounds: int32 [num_segments + 1], on the host.
        move: Copies a tensor to the device.
    """
    lengths = np.diff(bounds.numpy())
    distinct, firsts, counts = np.unique(lengths, return_index=True, return_counts=True)
    order = inverse = None
    if np.count_nonzero(np.diff(lengths)) < len(distinct):  # equal lengths are consecutive
        by_place = np.argsort(firsts)
        distinct, counts = distinct[by_place], counts[by_place]
    else:
        order = np.argsort(np.repeat(lengths, lengths), kind="stable")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
    return PictureSegments(
        runs=tuple(zip(counts.tolist(), distinct.tolist(), strict=True)),
        order=None if order is None else move(torch.from_numpy(order)),
        inverse=None if inverse is None else move(torch.from_numpy(inverse)),
    )


class _Reorder(torch.autograd.Function):
    """Reorder rows; the backward pass reverses it without any summation."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradients[0].index_select(0, inverse), None, None


def attend_pictures_by_segment(tower: nn.Module) -> None:
    """Make the layers of a vision tower attend all segments of one length at once."""
    for module in tower.modules():
        config = getattr(module, "config", None)
        if config is not None and (hasattr(module, "qkv") or hasattr(module, "q_proj")):
            # Only of this module: the tower's own config is saved, and models are built from it.
            module.config = own = copy.copy(config)
            own._attn_implementation_internal = _PICTURES  # noqa: SLF001 - the setter checks nothing, and has no public name


def _attend_pictures(
    _module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    scaling: float,
    uses_varlen: bool = False,
    segments: Mapping[int, PictureSegments] | None = None,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend: [1, heads, num_patches, size] to [1, num_patches, heads, size].

    `segments` are keyed by the number of bounds: windows are parts of images, so two divisions
    of the same patches with equally many bounds are the same.
    """
    if cu_seq_lens_q is None:  # generation with Pixtral's tower, which separates images by a mask
        attended = functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
        return attended.transpose(1, 2), None
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    if uses_varlen:
        assert max_length_q is not None
        output = attend_varlen(
            q, k, v, bounds=cu_seq_lens_q, longest=max_length_q, scale=scaling, window=(-1, -1)
        )
        return output[None], None
    if segments is None:  # generation, which only transformers runs
        groups = picture_segments(cu_seq_lens_q.cpu(), lambda tensor: tensor.to(query.device))
    else:
        groups = segments[len(cu_seq_lens_q)]
    if groups.order is not None:
        q, k, v = (_Reorder.apply(each, groups.order, groups.inverse) for each in (q, k, v))
    outputs, start = [], 0
    for number, length in groups.runs:
        end = start + number * length
        q_run, k_run, v_run = (
            each[start:end].unflatten(0, (number, length)).transpose(1, 2) for each in (q, k, v)
        )
        attended = functional.scaled_dot_product_attention(q_run, k_run, v_run, scale=scaling)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = end
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if groups.order is not None:
        joined = _Reorder.apply(joined, groups.inverse, groups.order)
    return joined[None], None


AttentionInterface.register(_PICTURES, _attend_pictures)
