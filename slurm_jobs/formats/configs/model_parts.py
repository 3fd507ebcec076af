"""Config of the model that a training starts from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.formats.config import CheckedConfig, Count, InputPath, Positive, ShareBelowOne


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptersConfig(CheckedConfig):
    """LoRA (arXiv:2106.09685): a learned product of two small matrices is added to a frozen one."""

    rank: Count = 16
    """Inner size of the product."""
    alpha: Positive = 32.0
    """Scale of the product: it is multiplied by `alpha / rank`."""
    dropout: ShareBelowOne = 0.0
    """Share of the adapters' inputs that is dropped at random in training."""
    targets: tuple[str, ...] = ("language",)
    """Linear layers with adapters: `language` (all within the layers of the language model), or
    patterns of full names (`model.visual.blocks.*.attn.qkv`)."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if not self.targets:
            yield "targets is empty: give `language`, or patterns of names of linear layers"


RANDOM_VISION: Mapping[str, int] = {
    "hidden_size": 128,
    "num_layers": 4,
    "num_heads": 4,
    "patch_size": 16,
    "mlp_ratio": 4,
}
"""Default sizes of a vision encoder that starts from random weights."""

RANDOM_LANGUAGE: Mapping[str, int] = {
    "hidden_size": 128,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "mlp_ratio": 3,
    "max_positions": 4096,
}
"""Default sizes of a language model that starts from random weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig(CheckedConfig):
    """Vision encoder of a `small_vlm`: from a folder, or from random weights."""

    path: InputPath | None = None
    """Folder of a SigLIP, or of a SigLIP 2 of fixed resolution: the whole model or its vision
    model. It gives weights and sizes, without the pooling head. Null: random weights."""
    hidden_size: Count | None = None
    """Width of a patch embedding; 128 for random weights."""
    num_layers: Count | None = None
    """Transformer layers; 4 for random weights."""
    num_heads: Count | None = None
    """Attention heads; they divide `hidden_size`; 4 for random weights."""
    patch_size: Count | None = None
    """Side of a patch in pixels; it divides the data set's image size; 16 for random weights."""
    mlp_ratio: Count | None = None
    """Width of a layer's MLP, as a multiple of `hidden_size`; 4 for random weights."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.path is not None:
            return
        sizes = self.sizes()
        if sizes["hidden_size"] % sizes["num_heads"]:
            yield (
                f"num_heads is {sizes['num_heads']}: give a divisor of hidden_size "
                f"({sizes['hidden_size']})"
            )

    def sizes(self) -> dict[str, int]:
        """Return the sizes of an encoder with random weights."""
        return {**RANDOM_VISION, **self.given()}

    def given(self) -> dict[str, int]:
        """Return the sizes that the user gave."""
        values = {name: getattr(self, name) for name in RANDOM_VISION}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageConfig(CheckedConfig):
    """Language model of a `small_vlm`: from a folder, or from random weights."""

    path: InputPath | None = None
    """Folder of a Qwen2 or Qwen2.5 causal language model. It gives weights and sizes; an output
    head that shares the token embeddings stays shared. Null: random weights and a separate output
    head."""
    hidden_size: Count | None = None
    """Width of a token embedding; 128 for random weights."""
    num_layers: Count | None = None
    """Transformer layers; 3 for random weights."""
    num_heads: Count | None = None
    """Attention heads; they divide `hidden_size` into even parts; 4 for random weights."""
    num_kv_heads: Count | None = None
    """Heads of keys and values; they divide `num_heads`; 2 for random weights."""
    mlp_ratio: Count | None = None
    """Width of a layer's gated MLP, as a multiple of `hidden_size`; 3 for random weights."""
    max_positions: Count | None = None
    """Longest sequence in tokens, image tokens included; 4096 for random weights."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.path is not None:
            return
        sizes = self.sizes()
        if sizes["hidden_size"] % (2 * sizes["num_heads"]):
            yield (
                f"num_heads is {sizes['num_heads']}: rotary embeddings need hidden_size / "
                f"num_heads to be even; hidden_size is {sizes['hidden_size']}"
            )
        if sizes["num_heads"] % sizes["num_kv_heads"]:
            yield (
                f"num_kv_heads is {sizes['num_kv_heads']}: give a divisor of num_heads "
                f"({sizes['num_heads']})"
            )

    def sizes(self) -> dict[str, int]:
        """Return the sizes of a language model with random weights."""
        return {**RANDOM_LANGUAGE, **self.given()}

    def given(self) -> dict[str, int]:
        """Return the sizes that the user gave."""
        values = {name: getattr(self, name) for name in RANDOM_LANGUAGE}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(CheckedConfig):
    """Model that is trained."""

    type: Literal["small_vlm", "hugging_face"] = "small_vlm"
    """`small_vlm`: SigLIP-type encoder, two-layer projector, Qwen2-type language model, built here.
    `hugging_face`: a model of transformers (LLaVA, LLaVA-NeXT, LLaVA-OneVision, Idefics3,
    SmolVLM, InternVL, Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5, Gemma 3, Gemma 4), from `path` or
    `name`."""
    path: InputPath | None = None
    """Folder to start from: a Hugging Face model, or a `model/` that an earlier run exported.
    Without one, a `small_vlm` starts from the folders of `vision` and `language`, or from random
    weights."""
    name: str | None = None
    """Name of a `hugging_face` model on the hub, instead of `path`; the local cache comes first."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Attention of a `hugging_face` model. `sdpa`: PyTorch's scaled dot product attention, with the
    fastest kernel that runs here. `eager`: a plain implementation, slow, with all scores in memory.
    """
    trust_remote_code: bool = False
    """Lets a `hugging_face` model run Python code that is stored next to its weights."""
    vision: VisionConfig = VisionConfig()
    """Encoder of a `small_vlm` that has no `path`."""
    language: LanguageConfig = LanguageConfig()
    """Language model of a `small_vlm` that has no `path`."""

    def problems(self) -> Iterator[str]:
        """Yield problems of the names of a model, and of folders for parts next to a whole one."""
        if self.type == "small_vlm" and self.name is not None:
            yield (
                f"name is {self.name} and type is small_vlm: set `type: hugging_face`, or give the "
                f"folder of a small_vlm as path"
            )
        if self.type == "hugging_face" and (self.path is None) == (self.name is None):
            given = "neither path nor name is" if self.path is None else "path and name are both"
            yield f"type is hugging_face, and {given} given: give exactly one of them"
        for name, path in (("vision", self.vision.path), ("language", self.language.path)):
            if path is not None and (self.path is not None or self.name is not None):
                yield (
                    f"path or name is given ({self.path or self.name}), and {name}.path is {path}: "
                    f"the first is a whole model; give that, or the folders of its parts"
                )


_ALL = frozenset({"fp32", "bf16", "fp16"})
_WHOLE = {"uint8": _ALL, "bf16": _ALL, "fp16": _ALL}
PROVEN: Mapping[str, Mapping[str, frozenset[str]]] = {
    "single": _WHOLE,
    "ddp": _WHOLE,
    "fsdp2": {
        "uint8": _ALL,
        "bf16": frozenset({"bf16"}),
        "fp16": frozenset({"fp16"}),
    },
}
"""Precisions in which packed weights are known to survive, by strategy and storage.

A test proves each combination, and each one left out. FSDP2 casts floating-point storage to the
precision that it gathers in: packed 4-bit codes would change, and training would continue without
an error. It never casts uint8.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizeConfig(CheckedConfig):
    """QLoRA (arXiv:2305.14314): frozen linear layers in 4 bits, with adapters that learn."""

    kind: Literal["nf4"] = "nf4"
    """`nf4`: sixteen levels at the quantiles of a normal distribution, in blocks of 64 weights."""
    double: bool = True
    """Quantise the scales of blocks, too: 4.13 instead of 4.5 bits per weight."""
    targets: tuple[str, ...] = ("language",)
    """Quantised linear layers: `language` (all within the layers of the language model, but not
    embeddings, output head, projector and vision tower), or patterns of full names
    (`model.visual.blocks.*.attn.qkv`)."""
    skip: tuple[str, ...] = ()
    """Patterns of target layers that are not quantised (`model.language_model.layers.0.*`)."""
    storage: Literal["uint8", "bf16", "fp16"] = "uint8"
    """Storage type of the packed weights. Under `fsdp2` a floating-point storage must equal
    `precision`, because weights are cast to it; `uint8` is never cast."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if not self.targets:
            yield "targets is empty: give `language`, or patterns of names of linear layers"

    def problem(
        self,
        *,
        learn: Collection[str] | None,
        has_adapters: bool,
        strategy: str,
        precision: str,
    ) -> str | None:
        """Return a conflict with the rest of a `TrainConfig`, with the remedy.

        `learn` may be that of a phase; `precision: auto` may become any.
        """
        if not has_adapters:
            return (
                "quantize is given without adapters: weights in 4 bits cannot learn; give "
                "adapters, which learn instead"
            )
        wrong = {"all", "language"}.intersection(learn or ())
        if wrong and "language" in self.targets:
            return (
                f"learn names {' and '.join(sorted(wrong))}, and quantize has the language model "
                "in 4 bits, which cannot learn: name adapters, projector or vision"
            )
        problems = [
            storage_problem(storage=self.storage, strategy=strategy, precision=each)
            for each in (sorted(_ALL) if precision == "auto" else [precision])
        ]
        return problems[0] if all(problems) else None


def storage_problem(*, storage: str, strategy: str, precision: str) -> str | None:
    """Return why packed weights would not survive, with the remedy; None if they do.

    `precision` is that of the computation: `fp32`, `bf16` or `fp16`.
    """
    by_storage = PROVEN.get(strategy)
    if by_storage is None:
        return (
            f"quantize is given and strategy is {strategy}, with which it has not been proven: "
            f"set `strategy: fsdp2` (or {' or '.join(sorted(set(PROVEN) - {'fsdp2'}))})"
        )
    if precision in by_storage.get(storage, frozenset()):
        return None
    return (
        f"quantize.storage is {storage}, precision is {precision} and strategy is {strategy}: "
        "4-bit weights that are stored as floating-point numbers are cast when they are gathered, "
        "and become others without an error; set `quantize: {storage: uint8}`"
    )
