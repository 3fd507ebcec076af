"""Attention kernel that PyTorch selects for a model, determined without weights.

The selection depends on the card, the dtype, the head sizes and on the mask. A mask excludes
FlashAttention, and cards before compute capability 8.0 have none. If nothing else is left, the
`math` kernel silently stores every score in memory. If the reason is that heads share keys, the
keys are repeated (`pipeline.models.attention_kernels.shared_keys`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

from pipeline.models.computation.attention_sizes import AttentionSizes, attention_sizes
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.layouts.padded_patches import PaddedPatches
from pipeline.models.vision_language import VisionLanguageModel

if TYPE_CHECKING:
    from pipeline.data.disk_format.dataset_info import DatasetInfo


def lengths_are_fixed(infos: Sequence[DatasetInfo], batching_kinds: Collection[str]) -> bool:
    """Check whether all batches of a training have the same shapes.

    cuDNN plans its attention for each batch size and pair of lengths, 23 to 37 ms each, and
    keeps every plan (github.com/modelscope/FunASR/pull/3705): this pays off for repeated
    shapes.
    """
    return not {"packed", "auto"} & set(batching_kinds) and all(
        info.image_kind == "fixed"
        and info.num_images == info.num_samples
        and info.num_tokens == info.num_samples * info.preprocess.get("max_tokens", 0)
        for info in infos
    )


_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
_LENGTH = 128
"""Length of the row in the query to PyTorch; kernels do not depend on it."""
_HOLDS_SCORES = ("math", "eager")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionUse:
    """Attention call of a tower."""

    tower: str
    sizes: AttentionSizes
    dtype: torch.dtype
    is_causal: bool
    has_mask: bool
    """True for packed rows with a dense mask, which keeps samples apart, or bounds; and for rows
    in which images see later tokens of their own."""
    sizes_differ: bool = False
    """True if its rows are images of varying size."""
    images_need_mask: bool = False
    """True if all rows with images have the mask, packed or not, or padded images have one."""


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
    in which each row is filled by one sample has none. Rows of a model whose images see later
    tokens of their own have one, too.
    """
    vision, language = attention_sizes(model)
    may_pack = not {"packed", "auto"}.isdisjoint(batching_kinds)
    of_pictures = AttentionUse(
        tower="vision",
        sizes=vision,
        dtype=dtype,
        is_causal=False,
        has_mask=isinstance(model.layout, PaddedPatches),
        images_need_mask=isinstance(model.layout, PaddedPatches),
        sizes_differ=isinstance(model.layout, NativePatches),
    )
    of_rows = AttentionUse(
        tower="language", sizes=language, dtype=dtype, is_causal=True, has_mask=False
    )
    images_need_mask = bool(model.block_layers)
    uses = [of_pictures, of_rows]
    if may_pack or images_need_mask:
        uses.append(replace(of_rows, has_mask=True, images_need_mask=images_need_mask))
    return uses


def find_kernels(
    use: AttentionUse, device: torch.device, attention_name: str, *, uses_varlen: bool = False
) -> AttentionFound:
    """Query PyTorch's selection; uses a few kilobytes, and runs no kernel.

    Only the implementation `sdpa` uses PyTorch's selection. With `uses_varlen` attention takes
    bounds instead of a mask, and for images of varying size.
    """
    takes_bounds = use.sizes_differ or (use.has_mask and not use.images_need_mask)
    if uses_varlen and takes_bounds:
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


def attention_note(choice: AttentionFound) -> str:
    """Return `language efficient (a dense mask keeps packed samples apart; flash without)`."""
    note = f"{choice.use.tower} {choice.kernel}"
    if choice.use.has_mask and choice.kernel != choice.kernel_otherwise:
        rows = "rows with images" if choice.use.images_need_mask else "packed rows"
        note += f" ({rows} have a dense mask; {choice.kernel_otherwise} without)"
    if choice.repeats_keys:
        note += " (with shared keys repeated for each head, which this card needs)"
    return note


def attention_warning(choice: AttentionFound, *, where: str, max_tokens: int | None) -> str | None:
    """Warn on a GPU about memory if every score is stored.

    `where` is the card; `max_tokens` of a row are None if unknown.
    """
    if choice.kernel not in _HOLDS_SCORES:
        return None
    length = max_tokens or 1000
    num_bytes = choice.use.sizes.num_heads * length**2 * 4  # in fp32
    return (
        f"attention of the {choice.use.tower} model runs the {choice.kernel} kernel on {where} in "
        f"{choice.use.dtype}, which stores every score: a row of {length} tokens takes "
        f"{num_bytes / 1e9:.2f} GB in each layer{_remedy(choice)}"
    )


def _remedy(choice: AttentionFound) -> str:
    if choice.kernel == "eager":
        return "; set `model: {attention: sdpa}`"
    if choice.kernel_otherwise in _HOLDS_SCORES or choice.use.images_need_mask:
        return "; use fewer tokens per row, or more microbatches"
    if choice.use.has_mask:
        return f"; rows without a mask run {choice.kernel_otherwise}: `batching: {{kind: grouped}}`"
    if choice.use.tower == "vision":  # its rows are images, packed or not
        return ""
    return f"; packed rows run {choice.kernel_otherwise}: `batching: {{kind: packed}}`"
