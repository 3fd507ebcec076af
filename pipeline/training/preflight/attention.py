"""Attention kernel that PyTorch selects for a model, determined without weights.

The selection depends on the card, the dtype, the head sizes and on the mask. A mask excludes
FlashAttention, and cards before compute capability 8.0 have none. If nothing else is left, the
`math` kernel silently stores every score in memory. If the reason is that heads share keys, the
keys are repeated (`pipeline.models.shared_keys`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

from pipeline.models import VisionLanguageModel
from pipeline.models.attention import AttentionSizes, attention_sizes
from pipeline.models.layouts import NativePatches

_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
_LENGTH = 128
"""Length of the row in the query to PyTorch; kernels do not depend on it."""
_SCORE_BYTES = 4
"""The `math` kernel computes scores in fp32."""
_HOLDS_SCORES = ("math", "eager")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionUse:
    """Attention call of a tower."""

    tower: str
    sizes: AttentionSizes
    dtype: torch.dtype
    is_causal: bool
    has_mask: bool
    """True for packed rows with a dense mask, which keeps samples apart, or bounds."""
    sizes_differ: bool = False
    """True if its rows are images of varying size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFound:
    """Kernel that runs, and the one for the other kind of rows."""

    use: AttentionUse
    kernel: str
    """`flash`, `efficient`, `cudnn`, `math`; or `varlen` or `eager`, which PyTorch does not
    select."""
    kernel_otherwise: str
    """Kernel without the mask, or with one if there is none."""
    repeats_keys: bool = False
    """True if it needs shared keys repeated for each head."""


def uses_of(
    model: VisionLanguageModel, batching_kinds: Collection[str], dtype: torch.dtype
) -> list[AttentionUse]:
    """Return the attention calls of a model's towers, with rows of all these kinds.

    Packed rows have samples that must not see each other, and so a dense mask; but a microbatch
    in which each row is filled by one sample has none.
    """
    vision, language = attention_sizes(model)
    masks = {"packed": {False, True}, "auto": {False, True}}
    kinds_of_rows = set().union(*(masks.get(kind, {False}) for kind in batching_kinds))
    of_pictures = AttentionUse(
        tower="vision",
        sizes=vision,
        dtype=dtype,
        is_causal=False,
        has_mask=False,
        sizes_differ=isinstance(model.layout, NativePatches),
    )
    of_rows = [
        AttentionUse(
            tower="language", sizes=language, dtype=dtype, is_causal=True, has_mask=has_mask
        )
        for has_mask in sorted(kinds_of_rows)
    ]
    return [of_pictures, *of_rows]


def find_kernels(
    use: AttentionUse, device: torch.device, attention_name: str, *, uses_varlen: bool = False
) -> AttentionFound:
    """Query PyTorch's selection; uses a few kilobytes, and runs no kernel.

    Args:
        use: Attention call of a tower.
        device: Device of the computation.
        attention_name: The model's implementation: only `sdpa` uses PyTorch's selection.
        uses_varlen: True if attention takes bounds instead of a mask, or for images of varying
            size.
    """
    if uses_varlen and (use.has_mask or use.sizes_differ):
        return AttentionFound(use=use, kernel="varlen", kernel_otherwise="varlen")
    if attention_name != "sdpa":
        return AttentionFound(use=use, kernel=attention_name, kernel_otherwise=attention_name)
    kernel, repeats = _best_kernel(use, device)
    otherwise, _ = _best_kernel(replace(use, has_mask=not use.has_mask), device)
    return AttentionFound(use=use, kernel=kernel, kernel_otherwise=otherwise, repeats_keys=repeats)


def _best_kernel(use: AttentionUse, device: torch.device) -> tuple[str, bool]:
    """Return the kernel, and whether shared keys must be repeated for it, if nothing else helps."""
    kernel = _choice(call_of(use, device))
    if kernel in _HOLDS_SCORES:
        repeated = _choice(call_of(use, device, repeats_keys=True))
        if repeated not in _HOLDS_SCORES:
            return repeated, True
    return kernel, False


def _choice(call: dict[str, Any]) -> str:
    """Return the selection of `scaled_dot_product_attention`."""
    number = torch._fused_sdp_choice(**call)  # noqa: SLF001 - there is no public way to ask
    return _NAMES.get(SDPBackend(number), "another")


def call_of(
    use: AttentionUse, device: torch.device, *, repeats_keys: bool = False
) -> dict[str, Any]:
    """Return PyTorch's arguments: shared keys are repeated if transformers' rule requires it.

    `repeats_keys`: always repeat them.
    """
    sizes = use.sizes
    options: dict[str, Any] = {"dtype": use.dtype, "device": device, "requires_grad": True}
    query = torch.empty(1, sizes.num_heads, _LENGTH, sizes.head_dim, **options)
    keys = torch.empty(1, sizes.num_kv_heads, _LENGTH, sizes.head_dim, **options)
    mask = None
    if use.has_mask:
        mask = torch.empty(1, 1, _LENGTH, _LENGTH, dtype=use.dtype, device=device)
    is_shared = sizes.num_kv_heads < sizes.num_heads
    shares = is_shared and not repeats_keys and use_gqa_in_sdpa(mask, keys, keys)
    if is_shared and not shares:
        keys = query
    return {
        "query": query,
        "key": keys,
        "value": keys,
        "attn_mask": mask,
        "is_causal": use.is_causal and mask is None,
        "enable_gqa": shares,
    }


def attention_note(found: AttentionFound) -> str:
    """Return `language efficient (a dense mask keeps packed samples apart; flash without)`."""
    told = f"{found.use.tower} {found.kernel}"
    if found.use.has_mask and found.kernel != found.kernel_otherwise:
        told += f" (packed rows have a dense mask; {found.kernel_otherwise} without)"
    if found.repeats_keys:
        told += " (with shared keys repeated for each head, which this card needs)"
    return told


def attention_warning(found: AttentionFound, *, where: str, max_tokens: int | None) -> str | None:
    """Warn on a GPU about memory if every score is stored.

    Args:
        found: Kernel that runs.
        where: The card.
        max_tokens: Tokens of a row; None if unknown.
    """
    if found.kernel not in _HOLDS_SCORES:
        return None
    length = max_tokens or 1000
    num_bytes = found.use.sizes.num_heads * length**2 * _SCORE_BYTES
    return (
        f"attention of the {found.use.tower} model runs the {found.kernel} kernel on {where} in "
        f"{found.use.dtype}, which stores every score: a row of {length} tokens takes "
        f"{num_bytes / 1e9:.2f} GB in each layer{_remedy(found)}"
    )


def _remedy(found: AttentionFound) -> str:
    if found.kernel == "eager":
        return "; set `model: {attention: sdpa}`"
    if found.kernel_otherwise in _HOLDS_SCORES:
        return "; use fewer tokens per row, or more microbatches"
    if found.use.has_mask:
        return f"; rows without a mask run {found.kernel_otherwise}: `batching: {{kind: grouped}}`"
    if found.use.tower == "vision":  # its rows are images, packed or not
        return ""
    return f"; packed rows run {found.kernel_otherwise}: `batching: {{kind: packed}}`"
