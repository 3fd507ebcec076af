"""Compiling the layers of the model that is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileConfig:
    """`torch.compile` of each layer; `{}` is enough."""

    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """`inductor` makes kernels: by Triton on a GPU, by the node's C++ compiler on a CPU. The others
    make none, and tell which part of compiling fails: `eager` traces layers alone, `aot_eager`
    derives their backward pass, too."""
    towers: tuple[Literal["vision", "language"], ...] = ("language",)
    """Whose layers. Those of a vision tower compile in the `small_vlm`, SmolVLM and Idefics3, and
    in Qwen's models where attention is `varlen`: with `dense`, Qwen's layers attend image by image.
    LLaVA's layers hand out what lies between them."""

    def __post_init__(self) -> None:
        """Refuse to compile nothing, or something twice."""
        if not self.towers or len(set(self.towers)) < len(self.towers):
            message = (
                f"compile.towers is [{', '.join(self.towers)}]: give `vision`, `language` or both, "
                "or leave `compile` out"
            )
            raise ValueError(message)
