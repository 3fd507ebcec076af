"""Floating-point operations of a step, and what share of a card's peak they are (MFU).

The formula is that of PaLM (arXiv:2204.02311, appendix B): per token 6 N + 12 L H Q T for N
weights, L layers of H heads of size Q, and T tokens that see each other. It counts the products of
matrices and nothing else, and so here:

- A weight costs 2 operations a token forward, 2 backward for the gradient of its input, and 2 for
  its own. One that is not trained costs 4 then; and 2 where nothing in its layer or before it is
  trained, so that no gradient passes through. The output head alone costs 4, and what is before it
  2. Adapters alone cost 4 N and not 6 N. Pixels and token ids need no gradient.
- Attention costs 4 L H Q T forward and, in layers through which a gradient passes, twice that
  backward. As in PaLM, a causal model's tokens count as if each saw all. T is a sample's length,
  not a row's: samples that share one do not see each other. So T summed over tokens is the sum of
  squares of the lengths.
- The output head is counted for learned tokens alone, because no other logits are computed.
- The vision tower counts patches, the projector image tokens.
- What is computed and not needed is not counted: padding, activations computed again
  (checkpointing), embeddings, norms and heads that tell classes. That makes MFU too low. A little
  too high is counted alone what learns first, a layer or the projector: a gradient is taken to
  pass through all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMULA = (
    "PaLM (arXiv:2204.02311, appendix B), 6 N + 12 L H Q T a token: 4 N of frozen weights, and "
    "2 N and 4 L H Q T where no gradient passes; T of a sample, not of a row; the vision tower by "
    "patches, the projector by image tokens, the head by learned tokens; no padding, nothing "
    "computed again. "
    "mfu = model_flops / (step_s - checkpoint_s - evaluation_s - compile_s) / peak_flops_per_s"
)
"""In one sentence, for the header of step records."""

_PRODUCT = 2
"""A multiplication and an addition."""
_ATTENTION_PRODUCTS = 2
"""Of queries and keys, and of their weights and values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartWork:
    """A part of a model, as far as its operations follow from it."""

    num_weights: Mapping[int, int] = field(default_factory=dict)
    """Of matrices, by how many products each makes with a token: 1 forward, one more for the
    gradient of its input, one more for its own."""
    attention_width: Mapping[int, int] = field(default_factory=dict)
    """Heads times size of a head, summed over the layers in which all tokens see each other, by how
    often their products are made: 1 forward, 3 in layers that have a backward."""
    window_width: Mapping[int, int] = field(default_factory=dict)
    """The same of layers in which only those of a window do."""

    def flops(self, num_tokens: int, *, num_pairs: int = 0, num_window_pairs: int = 0) -> float:
        """Operations for so many tokens.

        Args:
            num_tokens: That go through the matrices.
            num_pairs: That see each other: the sum of squares of lengths.
            num_window_pairs: That see each other in a window.
        """
        seen = _total(self.attention_width) * num_pairs
        seen += _total(self.window_width) * num_window_pairs
        products = _total(self.num_weights) * num_tokens
        return float(_PRODUCT * (products + _ATTENTION_PRODUCTS * seen))


def _total(numbers: Mapping[int, int]) -> int:
    return sum(number * times for times, number in numbers.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelWork:
    """A model, as far as its operations follow from it; which parts are trained is a part of it."""

    vision: PartWork
    projector: PartWork
    language: PartWork
    head: PartWork
    window_patches: int | None = None
    """Patches along the side of a window of the vision tower; None where it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkCounts:
    """What goes through a model in a batch or a step; counts of several are added up."""

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
    """Operations of a forward and a backward pass over what was counted, in one batch."""
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
    """Which share of a card's peak was used; None where the peak is not known.

    Args:
        flops: Of one card: those of its rank.
        seconds: That they took, all waits included.
        peak_flops_per_s: From `peaks.peak_flops_per_s`.
    """
    if peak_flops_per_s is None or not seconds > 0:
        return None
    return flops / seconds / peak_flops_per_s
