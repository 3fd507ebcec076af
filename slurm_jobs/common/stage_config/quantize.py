"""Frozen weights in 4 bits, and how they may be stored where they are sharded."""

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
"""By strategy and storage, the precisions in which packed weights are known to survive.

Each combination, and each that is left out, is held by a test. FSDP2 casts what is stored as a
floating-point number to the precision that it gathers in: packed 4-bit codes become others, and
training goes on with them without an error. It never casts uint8.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizeConfig:
    """QLoRA (arXiv:2305.14314): frozen linear layers in 4 bits, beside which adapters learn."""

    kind: Literal["nf4"] = "nf4"
    """`nf4`: sixteen levels at the quantiles of a normal distribution, in blocks of 64 weights."""
    double: bool = True
    """Whether the scales of blocks are quantised, too: 4.13 instead of 4.5 bits a weight."""
    targets: tuple[str, ...] = ("language",)
    """Linear layers that are quantised: `language` (all within the layers of the language model;
    embeddings, output head, projector and vision tower stay as they are), or patterns of full names
    (`model.visual.blocks.*.attn.qkv`)."""
    skip: tuple[str, ...] = ()
    """Patterns of those among them that stay as they are (`model.language_model.layers.0.*`)."""
    storage: Literal["uint8", "bf16", "fp16"] = "uint8"
    """As what the packed weights are stored. Under `fsdp2` a floating-point storage must be that of
    `precision`, because weights are cast to it; `uint8` is never cast."""

    def __post_init__(self) -> None:
        """Refuse quantisation of nothing."""
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
        """What speaks against it in the rest of a `TrainConfig`, with the remedy.

        Args:
            learn: As the config has it, or a phase.
            has_adapters: Whether there are some.
            strategy: As the config has it.
            precision: As the config has it; `auto` may become any.
        """
        if not has_adapters:
            return (
                "quantize is given without adapters: weights in 4 bits cannot learn; give "
                "adapters, which learn beside them"
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
    """Why packed weights would not survive, with the remedy; None if they are known to.

    Args:
        storage: As `QuantizeConfig` has it.
        strategy: As `TrainConfig` has it.
        precision: What is computed in: `fp32`, `bf16` or `fp16`.
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
