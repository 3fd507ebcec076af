"""Config of frozen weights in 4 bits, and of their storage if they are sharded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import check_bounds

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
class QuantizeConfig:
    """QLoRA (arXiv:2305.14314): frozen linear layers in 4 bits, with adapters that learn."""

    kind: Literal["nf4"] = "nf4"
    """`nf4`: sixteen levels at the quantiles of a normal distribution, in blocks of 64 weights."""
    double: bool = True
    """Quantise the scales of blocks, too: 4.13 instead of 4.5 bits a weight."""
    targets: tuple[str, ...] = ("language",)
    """Quantised linear layers: `language` (all within the layers of the language model, but not
    embeddings, output head, projector and vision tower), or patterns of full names
    (`model.visual.blocks.*.attn.qkv`)."""
    skip: tuple[str, ...] = ()
    """Patterns of target layers that are not quantised (`model.language_model.layers.0.*`)."""
    storage: Literal["uint8", "bf16", "fp16"] = "uint8"
    """Storage type of the packed weights. Under `fsdp2` a floating-point storage must equal
    `precision`, because weights are cast to it; `uint8` is never cast."""

    def __post_init__(self) -> None:
        """Check that there are layers to quantise."""
        check_bounds(self)
        if not self.targets:
            message = "targets is empty: give `language`, or patterns of names of linear layers"
            raise ValueError(message)

    def problem(
        self,
        *,
        learn: Collection[str] | None,
        has_adapters: bool,
        strategy: str,
        precision: str,
    ) -> str | None:
        """Return a conflict with the rest of a `TrainConfig`, with the remedy.

        Args:
            learn: as in the config, or in a phase.
            has_adapters: True if there are some.
            strategy: as in the config.
            precision: as in the config; `auto` may become any.
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
        found = [
            storage_problem(storage=self.storage, strategy=strategy, precision=each)
            for each in (sorted(_ALL) if precision == "auto" else [precision])
        ]
        return found[0] if all(found) else None


def storage_problem(*, storage: str, strategy: str, precision: str) -> str | None:
    """Return why packed weights would not survive, with the remedy; None if they do.

    Args:
        storage: as in `QuantizeConfig`.
        strategy: as in `TrainConfig`.
        precision: of the computation: `fp32`, `bf16` or `fp16`.
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
