"""Which attention keeps packed samples apart, and pictures of sizes of their own. PURE.

`varlen` takes the borders of samples and pictures; `dense` adds a mask to packed rows, and attends
pictures of one size at a time (`pipeline.models.segments`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from slurm_jobs.common.errors import StageConfigError

if TYPE_CHECKING:
    from pipeline.data.info import DatasetInfo

_LEAST_CAPABILITY = (8, 0)
"""Of FlashAttention 2 (github.com/Dao-AILab/flash-attention), which torch's varlen_attn runs."""
_MOST_HEAD_SIZE = 192
"""FlashAttention's backward pass has kernels for more on some cards alone
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch)."""
_HALVED = ("bf16", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFacts:
    """What the choice depends on."""

    device_type: str
    """`cuda` or `cpu`."""
    capability: tuple[int, int] | None
    """Of the GPU; None of CPUs."""
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    implementation: str
    """Of the model: `sdpa` or `eager`."""
    text_type: str
    """`model_type` of the language model's config."""
    takes_borders: bool
    """Whether that language model is known to hand borders on."""
    head_sizes: tuple[int, ...]
    """Of the towers."""
    dropout: float
    """Of the scores, in training."""
    packs: bool
    """Whether a row may have several samples."""
    sizes_differ: bool
    """Whether pictures have sizes of their own."""
    why_no_varlen: str
    """Why this PyTorch has no such kernel; empty if it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionChoice:
    """What a run uses, and why."""

    packed: Literal["varlen", "dense"]
    """Of packed rows, and of pictures of sizes of their own."""
    reason: str

    @property
    def uses_varlen(self) -> bool:
        """Whether attention takes borders."""
        return self.packed == "varlen"


def choose_attention(
    asked: Literal["auto", "varlen", "dense"], facts: AttentionFacts
) -> AttentionChoice:
    """Return what a training uses; the same on all ranks that are alike.

    Raises:
        StageConfigError: `varlen` is asked for and cannot run.
    """
    if asked == "dense":
        return AttentionChoice(packed="dense", reason="the config says so")
    problem = _why_not_here(facts)
    if asked == "varlen":
        # A CPU computes the reference, whatever the precision.
        problem = problem if facts.device_type == "cuda" else _why_not_this_model(facts)
        if problem:
            message = f"attention is varlen, but {problem}: set `attention: auto` or `dense`"
            raise StageConfigError(message)
        return AttentionChoice(packed="varlen", reason="the config says so")
    if not (facts.packs or facts.sizes_differ):
        problem = "no row has several samples, and pictures are of one size"
    if problem:
        return AttentionChoice(packed="dense", reason=problem)
    assert facts.capability is not None
    major, minor = facts.capability
    reason = f"compute capability {major}.{minor}, {facts.precision}"
    return AttentionChoice(packed="varlen", reason=reason)


def _why_not_this_model(facts: AttentionFacts) -> str:
    if facts.implementation != "sdpa":
        return f"model.attention is {facts.implementation}"
    if facts.packs and not facts.takes_borders:
        return f"language models of type {facts.text_type} are not known to take borders"
    if facts.dropout:
        return f"the model drops {facts.dropout:g} of its scores, and varlen has no dropout"
    return ""


def _why_not_here(facts: AttentionFacts) -> str:
    if facts.capability is None:
        return "a CPU has no kernel that takes borders"
    if facts.capability < _LEAST_CAPABILITY:
        major, minor = facts.capability
        return f"the GPU has compute capability {major}.{minor}, and the kernel needs 8.0 (A100)"
    if facts.precision not in _HALVED:
        return f"precision is {facts.precision}, and the kernel needs bf16 or fp16"
    if max(facts.head_sizes) > _MOST_HEAD_SIZE:
        return f"heads have {max(facts.head_sizes)} numbers, and the kernel takes {_MOST_HEAD_SIZE}"
    return facts.why_no_varlen or _why_not_this_model(facts)


def lengths_are_fixed(infos: Sequence[DatasetInfo], batching_kinds: Collection[str]) -> bool:
    """Check whether all batches of a training have the same shapes.

    cuDNN plans its attention for each batch size and pair of lengths, 23 to 37 ms each, and keeps
    every plan (github.com/modelscope/FunASR/pull/3705): it pays for shapes that come again.
    """
    return not {"packed", "auto"} & set(batching_kinds) and all(
        info.image_kind == "fixed"
        and info.num_images == info.num_samples
        and info.num_tokens == info.num_samples * info.preprocess.get("max_tokens", 0)
        for info in infos
    )
