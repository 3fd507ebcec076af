"""Choice of the attention for packed samples and for images of varying size.

`varlen` takes the bounds of samples and images; `dense` adds a mask to packed rows, and attends
images of one size at a time (`pipeline.models.attention_kernels.packed_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.base.errors import StageConfigError

_MOST_HEAD_SIZE = 192
"""FlashAttention's backward pass supports larger sizes only on some cards
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFacts:
    """Facts that determine the choice."""

    device_type: str
    """`cuda` or `cpu`."""
    capability: tuple[int, int] | None
    """Compute capability of the GPU; None for CPUs."""
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    implementation: str
    """Attention implementation of the model: `sdpa` or `eager`."""
    text_type: str
    """`model_type` of the language model's config."""
    takes_borders: bool
    """True if that language model is known to pass bounds on."""
    images_see_ahead: bool
    """True if tokens of an image also see later ones of it."""
    head_sizes: tuple[int, ...]
    """Head sizes of the towers."""
    dropout: float
    """Dropout of the scores, in training."""
    packs: bool
    """True if a row may have several samples."""
    sizes_differ: bool
    """True if images have varying sizes."""
    why_no_varlen: str
    """Reason why this PyTorch has no such kernel; empty if it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionChoice:
    """Attention of a run, and the reason."""

    packed: Literal["varlen", "dense"]
    """For packed rows, and for images of varying size."""
    reason: str

    @property
    def uses_varlen(self) -> bool:
        """True if attention takes bounds."""
        return self.packed == "varlen"


def choose_attention(
    setting: Literal["auto", "varlen", "dense"], facts: AttentionFacts
) -> AttentionChoice:
    """Return the attention of a training; equal on ranks with equal facts.

    Raises:
        StageConfigError: `varlen` is required but cannot run.
    """
    if setting == "dense":
        return AttentionChoice(packed="dense", reason="set in the config")
    problem = _why_not_here(facts)
    if setting == "varlen":
        # A CPU computes the reference, whatever the precision.
        problem = problem if facts.device_type == "cuda" else _why_not_this_model(facts)
        if problem:
            message = f"attention is varlen, but {problem}: set `attention: auto` or `dense`"
            raise StageConfigError(message)
        return AttentionChoice(packed="varlen", reason="set in the config")
    if not (facts.packs or facts.sizes_differ):
        problem = "no row has several samples, and images are of one size"
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
        return f"language models of type {facts.text_type} are not known to accept sample bounds"
    if facts.images_see_ahead:
        return (
            "the tokens of an image also see later ones of it in this model, which bounds of "
            "samples do not describe"
        )
    if facts.dropout:
        return (
            f"the model has a dropout of {facts.dropout:g} on scores, which varlen does not support"
        )
    return ""


def _why_not_here(facts: AttentionFacts) -> str:
    if facts.capability is None:
        return "there is no varlen kernel for CPUs"
    # FlashAttention 2's limit (github.com/Dao-AILab/flash-attention): torch's varlen_attn uses it
    if facts.capability < (8, 0):
        major, minor = facts.capability
        return f"the GPU has compute capability {major}.{minor}, but the kernel needs 8.0 (A100)"
    if facts.precision not in {"bf16", "fp16"}:
        return f"precision is {facts.precision}, but the kernel needs bf16 or fp16"
    if max(facts.head_sizes) > _MOST_HEAD_SIZE:
        return (
            f"heads have {max(facts.head_sizes)} numbers, but the kernel supports {_MOST_HEAD_SIZE}"
        )
    return facts.why_no_varlen or _why_not_this_model(facts)
