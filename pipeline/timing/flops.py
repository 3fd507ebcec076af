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
  squares of the lengths. In layers with a sliding window a token sees at most the window.
- A gated delta net (arXiv:2412.06464) has 3 products with its state per token: what a key reads,
  what is written, and what a query reads. A state of H heads of K by V numbers costs 6 H K V a
  token forward, and twice that backward. Kernels compute whole chunks of tokens at once, which
  takes more operations. These are not counted.
- Of the experts of a layer, only those that a token uses are counted.
- The output head is counted for learned tokens only, because no other logits are computed.
- The vision tower counts patches, the projector image tokens.
- Work that is computed but not needed is not counted: padding, recomputed activations, embeddings,
  norms and classifier heads. That makes MFU too low. Only the first trained layer, or the
  projector, is slightly overestimated: a gradient is assumed to pass through all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMULA = (
    "PaLM (arXiv:2204.02311, appendix B), 6 N + 12 L H Q T a token: 4 N of frozen weights, and "
    "2 N and 4 L H Q T where no gradient passes; T of a sample, not of a row; 18 H K V instead of "
    "12 L H Q T for a gated delta net; the vision tower by patches, the projector by image tokens, "
    "the head by learned tokens; no padding, nothing computed again. "
    "mfu = model_flops / (step_s - checkpoint_s - evaluation_s - compile_s) / peak_flops_per_s"
)
"""The formula in one sentence, for the header of step records."""
_STATE_PRODUCTS = 3
"""Products of a token with the state of a gated delta net: what a key reads, what is written, and
what a query reads."""


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
    state_size: Mapping[int, int] = field(default_factory=dict)
    """Numbers in the states of gated delta nets, summed over layers, by the number of products: 1
    forward, 3 in layers with a backward pass."""

    def flops(self, num_tokens: int, *, num_pairs: int = 0, num_window_pairs: int = 0) -> float:
        """Return the operations for `num_tokens`.

        `num_pairs` see each other (the sum of squares of lengths), `num_window_pairs` in a window.
        """
        seen = _total(self.attention_width) * num_pairs
        seen += _total(self.window_width) * num_window_pairs
        products = _total(self.num_weights) * num_tokens
        products += _STATE_PRODUCTS * _total(self.state_size) * num_tokens
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
    window_tokens: int | None = None
    """Tokens that one sees in the language model's layers with a sliding window; None if it has
    none."""


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
    num_token_window_pairs: int = 0
    """Sum of the lengths of samples, each times itself or the window, whichever is shorter."""
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
        + model.language.flops(
            counts.num_tokens,
            num_pairs=counts.num_token_pairs,
            num_window_pairs=counts.num_token_window_pairs,
        )
        + model.head.flops(counts.num_learned)
    )


def mfu(flops: float, seconds: float, peak_flops_per_s: float | None) -> float | None:
    """Return the used share of a card's peak; None if the peak is unknown.

    `flops` are those of one card's rank, `seconds` their duration with all waits.
    """
    if peak_flops_per_s is None or not seconds > 0:
        return None
    return flops / seconds / peak_flops_per_s
