"""Attention by the bounds of segments: PyTorch's kernel, and a reference for CPUs.

The kernel (`torch.nn.attention.varlen`) is for GPUs of compute capability 8.0 and later. On a CPU
the same call computes the formula of attention segment by segment: a reference for tests, not for
speed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import torch
from torch.nn import functional

KERNEL_MULTIPLE = 8
"""Kernels need head sizes, and rows of masks, to be a multiple of this."""


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

    attend = cast("Callable[..., torch.Tensor]", varlen_attn)  # a tuple only with `return_aux`
    return attend, "enable_gqa" in inspect.signature(varlen_attn).parameters


def computing_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Return the dtype of products with a tensor: autocast's if it is on, else its own."""
    device = tensor.device.type
    if tensor.is_meta or not torch.is_autocast_enabled(device):
        return tensor.dtype
    return torch.get_autocast_dtype(device)


def attend_varlen(
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
    if size % KERNEL_MULTIPLE:  # zeros change no score, and give zeros
        missing = (0, -size % KERNEL_MULTIPLE)
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
    grad_q, grad_k, grad_v = (
        each.transpose(0, 1).to(query.dtype).contiguous() for each in (grad_q, grad_k, grad_v)
    )
    return grad_q, grad_k, grad_v


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
