"""Attention within segments: samples that share a row, and images of varying size.

There are two implementations for rows of several samples. `dense`: one additive mask keeps the
samples apart, built once per microbatch in the dtype of the computation, so that no layer
converts it again. `varlen`: a kernel takes the bounds of the samples and computes nothing
across them (`torch.nn.attention.varlen`, for GPUs of compute capability 8.0 and later). On a
CPU the same call computes the formula of attention segment by segment: a reference for tests,
not for speed.

Images of Qwen's vision towers, and the windows into which Qwen2.5-VL cuts them, are segments,
too. transformers loops over them, one call each; here segments of equal length are one call.

transformers looks up attention by a name in the config. This module replaces `sdpa` by a function
that also takes the bounds of samples. For vision towers it adds `_PICTURES`: they pass the bounds
of images only to an implementation whose name contains `flash`.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_ROWS = "sdpa"
_PICTURES = "flash_by_picture"
_MULTIPLE = 8
"""Kernels need head sizes, and rows of masks, to be a multiple of this."""

AttendRows = Callable[..., tuple[torch.Tensor, Any]]
"""Signature of transformers' `sdpa_attention_forward`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Bounds of the samples in the rows of a batch."""

    bounds: torch.Tensor | None
    """int32 [num_segments + 1] on the device: bounds in the concatenated rows, from 0 to the
    number of positions. The padding of a row is a segment. None: no row has several samples."""
    longest: int
    """Tokens of the longest segment."""
    dtype: torch.dtype
    """Dtype of the computation and of masks."""


def dense_mask(
    bounds: torch.Tensor, dtype: torch.dtype, num_rows: int, length: int, window: int | None = None
) -> torch.Tensor:
    """Return the mask to add to scores: [num_rows, 1, length, length], 0 or minus infinity.

    Args:
        bounds: As in `Packing`.
        dtype: Dtype of the computation.
        num_rows: Rows of the batch.
        length: Tokens of each row.
        window: Number of tokens that a token sees, itself included; None: all before it.
    """
    device = bounds.device
    places = torch.arange(num_rows * length, device=device, dtype=bounds.dtype)
    numbers = torch.searchsorted(bounds, places, right=True).view(num_rows, 1, length)
    within = torch.arange(length, device=device, dtype=bounds.dtype)
    distance = within[:, None] - within[None, :]
    hidden = (numbers[..., :, None] != numbers[..., None, :]) | (distance < 0)
    if window is not None:
        hidden |= distance >= window
    # Each layer would copy rows of another alignment, also for its backward pass.
    width = -(-length // _MULTIPLE) * _MULTIPLE
    padded = torch.zeros(num_rows, 1, length, width, device=device, dtype=dtype)
    return padded[..., :length].masked_fill_(hidden, -torch.inf)


def attention_arguments(
    packing: Packing | None, text_config: Any, input_ids: torch.Tensor, *, uses_varlen: bool
) -> dict[str, Any]:
    """Return arguments that make a transformers language model keep packed samples apart.

    transformers passes a mask of four dimensions through: it reads nothing from the device, and
    builds no mask.

    Args:
        packing: None: unknown, and transformers builds a mask from positions that restart.
        text_config: Config of the language model.
        input_ids: [num_rows, length].
        uses_varlen: True if the kernel takes the bounds.
    """
    if packing is None or not takes_masks(text_config):
        return {"attention_mask": None}
    windows = _windows(text_config)
    if packing.bounds is None:
        is_plain = set(windows.values()) == {None} and text_config._attn_implementation == _ROWS  # noqa: SLF001 - no public name
        return {"attention_mask": _no_mask(input_ids) if is_plain else None}
    if uses_varlen:
        return {
            "attention_mask": _no_mask(input_ids),
            "cu_seq_lens_q": packing.bounds,
            "max_length_q": packing.longest,
        }
    masks = {
        kind: dense_mask(packing.bounds, packing.dtype, *input_ids.shape, window=window)
        for kind, window in windows.items()
    }
    return {"attention_mask": masks if len(masks) > 1 else next(iter(masks.values()))}


def _no_mask(input_ids: torch.Tensor) -> torch.Tensor:
    """Return an empty mask for `attend`, which means no mask.

    Its shape fits no scores, so that any other attention fails, instead of ignoring the bounds.
    """
    return torch.empty((0,) * 4, device=input_ids.device, dtype=torch.bool)


def _windows(text_config: Any) -> dict[str, int | None]:
    """Return the number of tokens that a token sees by kind of layer; None: all before it."""
    window = getattr(text_config, "sliding_window", None)
    kinds = set(getattr(text_config, "layer_types", None) or ())
    if "sliding_attention" in kinds:
        return {"full_attention": None, "sliding_attention": window}
    in_all = text_config.model_type in _WINDOW_IN_ALL_LAYERS
    return {"full_attention": window if in_all else None}


_WINDOW_IN_ALL_LAYERS = ("mistral",)
_TAKE_MASKS = (
    *("llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"),
    *("qwen3",),
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
        output = _attend_varlen(
            q, k, v, bounds=cu_seq_lens_q, longest=max_length_q, scale=scaling, window=window
        )
        return output.view(query.shape[0], query.shape[2], *output.shape[1:]), None

    AttentionInterface.register(_ROWS, attend)


attend_rows_by(sdpa_attention_forward)


# Images of varying size


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
    """Make the layers of a vision tower of Qwen attend all segments of one length at once."""
    for module in tower.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(module, "qkv"):
            # Only of this module: the tower's own config is saved, and models are built from it.
            module.config = copy.copy(config)
            module.config._attn_implementation_internal = _PICTURES  # noqa: SLF001 - the setter checks nothing, and has no public name


def _attend_pictures(
    _module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None = None,
    *,
    cu_seq_lens_q: torch.Tensor,
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
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    if uses_varlen:
        assert max_length_q is not None
        output = _attend_varlen(
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
        parts = (
            each[start:end].unflatten(0, (number, length)).transpose(1, 2) for each in (q, k, v)
        )
        attended = functional.scaled_dot_product_attention(*parts, scale=scaling)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = end
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if groups.order is not None:
        joined = _Reorder.apply(joined, groups.inverse, groups.order)
    return joined[None], None


AttentionInterface.register(_PICTURES, _attend_pictures)


# The kernel, and its reference


def why_no_varlen() -> str:
    """Return why this PyTorch has no attention that takes bounds; empty if it has."""
    try:
        from torch.nn.attention import varlen  # noqa: F401 - only whether it exists
    except ImportError:
        return f"torch {torch.__version__} has no torch.nn.attention.varlen (2.11 or later has)"
    return ""


@functools.cache
def _kernel() -> tuple[Callable[..., torch.Tensor], bool]:
    """Return the kernel, and whether it has an argument for shared keys."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn, "enable_gqa" in inspect.signature(varlen_attn).parameters


def computing_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Return the dtype of products with a tensor: autocast's if it is on, else its own."""
    device = tensor.device.type
    if tensor.is_meta or not torch.is_autocast_enabled(device):
        return tensor.dtype
    return torch.get_autocast_dtype(device)


def _attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    bounds: torch.Tensor,
    longest: int,
    scale: float | None,
    window: tuple[int, int],
) -> torch.Tensor:
    """Attend within segments: [tokens, heads, size]; keys and values may have fewer heads.

    `window`: number of tokens before and after itself that a token sees, -1 for its segment.
    """
    size = query.shape[-1]
    scale = size**-0.5 if scale is None else scale
    # The kernel takes no fp32, and autocast does not cast for it. Rotated queries and keys are
    # fp32 if the residual is, and 4-bit layers return fp32 for fp32.
    query, key, value = (each.to(computing_dtype(value)) for each in (query, key, value))
    if not query.is_cuda:
        return reference_attention(query, key, value, bounds, scale, *window)
    attend, wants_sharing = _kernel()
    options = {"enable_gqa": query.shape[1] != key.shape[1]} if wants_sharing else {}
    if size % _MULTIPLE:  # zeros change no score, and give zeros
        missing = (0, -size % _MULTIPLE)
        query, key, value = (functional.pad(each, missing) for each in (query, key, value))
    output = attend(
        *(query, key, value, bounds, bounds, longest, longest),
        scale=scale,
        window_size=window,
        **options,
    )
    return output[..., :size]


def _segments(
    bounds: torch.Tensor, length: int, before: int, after: int
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield each segment with the bool mask of its scores, True where a token is seen."""
    assert int(bounds[-1]) == length
    for start, end in pairwise(bounds.tolist()):
        within = torch.arange(end - start)
        distance = within[:, None] - within[None, :]
        seen = torch.ones_like(distance, dtype=torch.bool)
        if before >= 0:
            seen &= distance <= before
        if after >= 0:
            seen &= distance >= -after
        yield slice(start, end), seen


def _weights(q: torch.Tensor, k: torch.Tensor, seen: torch.Tensor, scale: float) -> torch.Tensor:
    """Compute [heads, tokens, tokens] from [heads, tokens, size]."""
    return (scale * q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1)


def _by_head(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Return fp32 [num_heads, tokens, size] from [tokens, heads, size] with shared heads."""
    shared = tensor.transpose(0, 1).to(torch.promote_types(tensor.dtype, torch.float32))
    return shared.repeat_interleave(num_heads // len(shared), 0)


@torch.library.custom_op("slurm_jobs::reference_attention", mutates_args=())
def reference_attention(  # noqa: PLR0917 - as the kernel
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    scale: float,
    before: int,
    after: int,
) -> torch.Tensor:
    """Compute the formula of attention segment by segment, with the arguments of `varlen_attn`.

    It is a custom operation, so that a compiled layer contains it as a whole, like the kernel.
    """
    output = torch.empty_like(query)
    q, k, v = (_by_head(each, query.shape[1]) for each in (query, key, value))
    for part, seen in _segments(bounds, len(query), before, after):
        weights = _weights(q[:, part], k[:, part], seen, scale)
        output[part] = (weights @ v[:, part]).transpose(0, 1).to(output.dtype)
    return output


@reference_attention.register_fake
def _(query: torch.Tensor, *_others: Any) -> torch.Tensor:
    return torch.empty_like(query)


@torch.library.custom_op("slurm_jobs::reference_attention_backward", mutates_args=())
def _reference_backward(  # noqa: PLR0917 - as the kernel's
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    scale: float,
    before: int,
    after: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute `Softmax.backward` of arXiv:2205.14135, algorithm 4, for whole segments."""
    num_heads = query.shape[1]
    q, k, v, grad_output = (_by_head(each, num_heads) for each in (query, key, value, gradient))
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    for part, seen in _segments(bounds, len(query), before, after):
        weights = _weights(q[:, part], k[:, part], seen, scale)
        grad_v[:, part] = weights.mT @ grad_output[:, part]
        grad_weights = grad_output[:, part] @ v[:, part].mT
        grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
        grad_q[:, part] = scale * grad_scores @ k[:, part]
        grad_k[:, part] = scale * grad_scores.mT @ q[:, part]
    grad_k, grad_v = (each.unflatten(0, (key.shape[1], -1)).sum(1) for each in (grad_k, grad_v))
    gradients = (
        each.transpose(0, 1).to(query.dtype).contiguous() for each in (grad_q, grad_k, grad_v)
    )
    return tuple(gradients)


@_reference_backward.register_fake
def _(
    _gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grad_q, grad_k, grad_v = (each.new_empty(each.shape) for each in (query, key, value))
    return grad_q, grad_k, grad_v


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001 - torch calls it by name
    *tensors, scale, before, after = inputs
    ctx.save_for_backward(*tensors)
    ctx.how = (scale, before, after)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return (*_reference_backward(gradient, *ctx.saved_tensors, *ctx.how), None, None, None, None)


reference_attention.register_autograd(_backward, setup_context=_setup_context)
