"""Which model a training starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import (
    Count,
    InputPath,
    check_bounds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """A SigLIP-type vision encoder that starts from random weights."""

    hidden_size: Count = 128
    """Width of a patch embedding."""
    num_layers: Count = 4
    """Transformer layers."""
    num_heads: Count = 4
    """Attention heads; they divide `hidden_size`."""
    patch_size: Count = 16
    """Side of a patch in pixels; it divides the data set's image size."""
    mlp_ratio: Count = 4
    """Width of a layer's MLP, as a multiple of `hidden_size`."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        check_bounds(self)
        if self.hidden_size % self.num_heads:
            message = (
                f"num_heads is {self.num_heads}: give a divisor of hidden_size ({self.hidden_size})"
            )
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageConfig:
    """A Qwen2-type language model that starts from random weights."""

    hidden_size: Count = 128
    """Width of a token embedding."""
    num_layers: Count = 3
    """Transformer layers."""
    num_heads: Count = 4
    """Attention heads; they divide `hidden_size` into even parts."""
    num_kv_heads: Count = 2
    """Heads of keys and values; they divide `num_heads`."""
    mlp_ratio: Count = 3
    """Width of a layer's gated MLP, as a multiple of `hidden_size`."""
    max_positions: Count = 4096
    """Longest sequence in tokens, image tokens included."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        check_bounds(self)
        if self.hidden_size % (2 * self.num_heads):
            message = (
                f"num_heads is {self.num_heads}: rotary embeddings need hidden_size / num_heads "
                f"to be even; hidden_size is {self.hidden_size}"
            )
            raise ValueError(message)
        if self.num_heads % self.num_kv_heads:
            message = (
                f"num_kv_heads is {self.num_kv_heads}: give a divisor of num_heads "
                f"({self.num_heads})"
            )
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model is trained."""

    type: Literal["small_vlm", "hugging_face"] = "small_vlm"
    """`small_vlm`: SigLIP-type encoder, two-layer projector, Qwen2-type language model, built here.
    `hugging_face`: a model of transformers (LLaVA, LLaVA-NeXT, Idefics3, SmolVLM, Qwen2-VL,
    Qwen2.5-VL, Qwen3-VL), from `path` or `name`."""
    path: InputPath | None = None
    """Folder to start from: of a Hugging Face model, or a `model/` that an earlier run exported. A
    `small_vlm` without one starts from random weights."""
    name: str | None = None
    """Of a `hugging_face` model on the hub, instead of `path`; from the local cache where it is."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Of a `hugging_face` model: PyTorch's scaled dot product attention, which chooses the fastest
    kernel that runs here, or one written out, which is slow and holds every score in memory."""
    trust_remote_code: bool = False
    """Whether a `hugging_face` model may run Python code that lies beside its weights."""
    vision: VisionConfig = VisionConfig()
    """Of a model that starts from random weights."""
    language: LanguageConfig = LanguageConfig()
    """Of a model that starts from random weights."""

    def __post_init__(self) -> None:
        """Refuse what names no model, or two."""
        if self.type == "small_vlm" and self.name is not None:
            message = (
                f"name is {self.name} and type is small_vlm: set `type: hugging_face`, or give the "
                f"folder of a small_vlm as path"
            )
            raise ValueError(message)
        if self.type == "hugging_face" and (self.path is None) == (self.name is None):
            given = "neither path nor name is" if self.path is None else "path and name are both"
            message = f"type is hugging_face, and {given} given: give exactly one of them"
            raise ValueError(message)
