"""Floating-point operations of a step, and their share of a card's peak (MFU).

The formula is that of PaLM (arXiv:2204.02311, appendix B): per token 6 N + 12 L H Q T for N
weights, L layers of H heads of size Q, and T tokens that see each other. It counts only the
products of matrices, with these rules:

- A weight costs 2 operations a token forward, 2 backward for the gradient of its input, and 2 for
  its own. One that is not trained costs 4 then; and 2 where nothing in its layer or before it is
  trained, so that no gradient passes through. The output head alone costs 4, and what is before it
  2. Adapters alone cost 4 N and not 6 N. Pixels and token ids need no gradient.
- Attention costs 4 L H Q T forward and, in layers through which a gradient passes, twice that
  backward. As in PaLM, a causal model's tokens count as if each saw all. T is a sample's length,
  not a row's: samples that share one do not see each other. So T summed over tokens is the sum of
  squares of the lengths.
- The output head is counted for learned tokens only, because no other logits are computed.
- The vision tower counts patches, the projector image tokens.
- Work that is computed but not needed is not counted: padding, recomputed activations, embeddings,
  norms and classifier heads. That makes MFU too low. Only the first trained layer, or the
  projector, is slightly overestimated: a gradient is assumed to pass through all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FORMULA = (
    "PaLM (arXiv:2204.02311, appendix B), 6 N + 12 L H Q T a token: 4 N of frozen weights, and "
    "2 N and 4 L H Q T where no gradient passes; T of a sample, not of a row; the vision tower by "
    "patches, the projector by image tokens, the head by learned tokens; no padding, nothing "
    "computed again. "
    "mfu = model_flops / (step_s - checkpoint_s - evaluation_s - compile_s) / peak_flops_per_s"
)
"""The formula in one sentence, for the header of step records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartWork:
    """Sizes of a part of a model that determine its operations."""

    num_weights: Mapping[int, int] = field(default_factory=dict)
    """Weights of matrices, by the number of products per token: 1 forward, one more for the
    gradient of the input, one more for the weight's."""
    attention_width: Mapping[int, int] = field(default_factory=dict)
    """Number of heads times head size, summed over the layers in which all tokens see each
    other, by the number of products: 1 forward, 3 in layers with a backward pass."""
    window_width: Mapping[int, int] = field(default_factory=dict)
    """The same for layers with windowed attention."""

    def flops(self, num_tokens: int, *, num_pairs: int = 0, num_window_pairs: int = 0) -> float:
        """Return the operations for `num_tokens`.

        `num_pairs` see each other (the sum of squares of lengths), `num_window_pairs` in a window.
        """
        seen = _total(self.attention_width) * num_pairs
        seen += _total(self.window_width) * num_window_pairs
        products = _total(self.num_weights) * num_tokens
        # A product is a multiplication and an addition. Attention has two: of queries and keys, and
        # of their weights and values.
        return float(2 * (products + 2 * seen))


def _total(numbers: Mapping[int, int]) -> int:
    return sum(number * times for times, number in numbers.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelWork:
    """Sizes of a model that determine its operations; they include which parts are trained."""

    vision: PartWork
    projector: PartWork
    language: PartWork
    head: PartWork
    window_patches: int | None = None
    """Patches along the side of a window of the vision tower; None if it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkCounts:
    """Work of a batch or a step; counts can be added."""

    num_patches: int = 0
    num_patch_pairs: int = 0
    """Sum of squares of the patches of each image."""
    num_window_pairs: int = 0
    """Sum of squares of the patches of each window."""
    num_image_tokens: int = 0
    num_tokens: int = 0
    """Without padding, image tokens included."""
    num_token_pairs: int = 0
    """Sum of squares of the lengths of samples."""
    num_learned: int = 0
    """Tokens whose logits are computed."""

    def __add__(self, other: WorkCounts) -> WorkCounts:
        return WorkCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__slots__}
        )


def model_flops(model: ModelWork, counts: WorkCounts) -> float:
    """Return the operations of a forward and a backward pass over the counts of one batch."""
    return (
        model.vision.flops(
            counts.num_patches,
            num_pairs=counts.num_patch_pairs,
            num_window_pairs=counts.num_window_pairs,
        )
        + model.projector.flops(counts.num_image_tokens)
        + model.language.flops(counts.num_tokens, num_pairs=counts.num_token_pairs)
        + model.head.flops(counts.num_learned)
    )


def mfu(flops: float, seconds: float, peak_flops_per_s: float | None) -> float | None:
    """Return the used share of a card's peak; None if the peak is unknown.

    `flops` are those of one card's rank, `seconds` their duration with all waits.
    """
    if peak_flops_per_s is None or not seconds > 0:
        return None
    return flops / seconds / peak_flops_per_s


# Peak rates of cards from their vendor's data sheets: dense products of matrices.
#
# Data sheets of later cards print figures "with sparsity", which are twice as high; those are
# halved here. A card that is not in the table has no MFU: a guess would be worse than none.


class Card(NamedTuple):
    """Cards of one kind."""

    name: str
    """Pattern of the whole name from the driver."""
    flops_per_s: Mapping[str, float]
    """By precision: `bf16`, `fp16` (tensor cores, fp32 sums), `fp32` and `tf32` (fp32 products
    by tensor cores)."""
    source: str


_GB = r"[ -]\d+GB"
_SHEET = "Tensor Core GPU data sheet"


def _volta(half: float, single: float) -> Mapping[str, float]:
    return {"fp16": half, "fp32": single}


def _ampere(half: float, single: float, tf32: float) -> Mapping[str, float]:
    return {"bf16": half, "fp16": half, "fp32": single, "tf32": tf32}


_V100 = f"NVIDIA V100 {_SHEET}, January 2020"
CARDS = (
    Card(rf"Tesla V100-SXM2{_GB}(-LS)?|Tesla V100-SXM3{_GB}(-H)?", _volta(125e12, 15.7e12), _V100),
    Card(rf"Tesla V100-PCIE{_GB}", _volta(112e12, 14e12), _V100),
    Card(rf"Tesla V100S-PCIE{_GB}", _volta(130e12, 16.4e12), _V100),
    Card(r"(Tesla|NVIDIA) T4", _volta(65e12, 8.1e12), f"NVIDIA T4 {_SHEET}"),
    Card(
        r"(NVIDIA )?A100[- ](SXM4-)?(PCIE-)?(40GB|80GB)( PCIe)?",
        _ampere(312e12, 19.5e12, 156e12),
        f"NVIDIA A100 {_SHEET}, June 2021",
    ),
    Card(r"NVIDIA A10", _ampere(125e12, 31.2e12, 62.5e12), f"NVIDIA A10 {_SHEET}"),
    Card(r"NVIDIA A30", _ampere(165e12, 10.3e12, 82e12), f"NVIDIA A30 {_SHEET}"),
    Card(r"NVIDIA A40", _ampere(149.7e12, 37.4e12, 74.8e12), "NVIDIA A40 data sheet"),
    Card(r"NVIDIA L4", _ampere(121e12, 30.3e12, 60e12), f"NVIDIA L4 {_SHEET}"),
    Card(r"NVIDIA L40S", _ampere(362e12, 91.6e12, 183e12), "NVIDIA L40S data sheet"),
    # SXM5
    Card(r"NVIDIA H100 80GB HBM3", _ampere(989e12, 67e12, 494e12), f"NVIDIA H100 {_SHEET} (SXM)"),
    Card(r"NVIDIA H100 PCIe", _ampere(756e12, 51e12, 378e12), f"NVIDIA H100 {_SHEET} (PCIe)"),
    Card(r"NVIDIA H100 NVL", _ampere(835e12, 60e12, 417e12), f"NVIDIA H100 {_SHEET} (NVL)"),
    Card(r"NVIDIA H200", _ampere(989e12, 67e12, 494e12), f"NVIDIA H200 {_SHEET} (SXM)"),
    Card(r"NVIDIA H200 NVL", _ampere(835e12, 60e12, 417e12), f"NVIDIA H200 {_SHEET} (NVL)"),
    Card(
        r"(NVIDIA )?GH200 (120GB|480GB|144G HBM3e)",
        _ampere(989e12, 67e12, 494e12),
        "NVIDIA GH200 Grace Hopper Superchip data sheet",
    ),
    Card(
        r"NVIDIA B200",
        _ampere(2250e12, 80e12, 1100e12),
        "NVIDIA Blackwell Architecture Technical Brief (HGX B200)",
    ),
)
"""Names are matched as a whole, so MIG slices and custom cards, which are slower or faster,
match nothing."""


def find_card(name: str) -> Card | None:
    """Return the card of a name from `torch.cuda.get_device_name`; None: unknown."""
    return next((card for card in CARDS if re.fullmatch(card.name, name)), None)


def peak_flops_per_s(name: str, precision: str) -> float | None:
    """Return the rate of a card in a precision; None if the card is unknown or lacks it."""
    card = find_card(name)
    return None if card is None else card.flops_per_s.get(precision)
