"""Config of the compilation of model layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileConfig:
    """Settings of `torch.compile` for each layer; `{}` is enough."""

    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """`inductor` makes kernels: by Triton on a GPU, by the node's C++ compiler on a CPU. The others
    make none, and help to find the part of compiling that fails: `eager` only traces layers,
    `aot_eager` also derives their backward pass."""
    towers: tuple[Literal["vision", "language"], ...] = ("language",)
    """Towers whose layers are compiled. Those of a vision tower compile in the `small_vlm`, SmolVLM
    and Idefics3, and in Qwen's models if attention is `varlen`: with `dense`, Qwen's layers attend
    image by image. Those of LLaVA do not, because they return intermediate values."""

    def __post_init__(self) -> None:
        """Check that towers are given, each once."""
        if not self.towers or len(set(self.towers)) < len(self.towers):
            message = (
                f"compile.towers is [{', '.join(self.towers)}]: give `vision`, `language` or both, "
                "or leave `compile` out"
            )
            raise ValueError(message)
