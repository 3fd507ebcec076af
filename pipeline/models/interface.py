"""What training asks of every vision-language model."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from pipeline.data.learned import ClassPlaces
from pipeline.models.layouts import ImageLayout, StoredImages
from pipeline.models.layouts.model import VisionInputs
from pipeline.models.loss import summed_cross_entropy
from pipeline.models.segments import Packing

HEADS_PREFIX = "heads."
"""Of the names of parameters that tell classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TowerSizes:
    """As much of a tower as its work follows from."""

    hidden_size: int
    num_layers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A conversation that the model is to continue."""

    input_ids: Sequence[int]
    """Image tokens expanded."""
    images: StoredImages
    """On the host."""


class VisionLanguageModel(nn.Module, abc.ABC):
    """Images and text in, loss or text out."""

    layout: ImageLayout
    """How it takes images."""
    num_levels: int = 1
    """Chained targets of a sample."""
    why_vision_not_compiled: str = ""
    """Why layers of the vision tower cannot be compiled; empty where they can."""
    uses_varlen: bool = False
    """Whether attention takes the borders of packed samples, and of pictures of sizes of their own,
    instead of a dense mask and one call for each size."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        """Linear layers that tell classes, by number of the level."""

    def add_heads(self, num_levels: int, num_classes: Mapping[int, int]) -> None:
        """Make room for levels; those of `num_classes` are told by class.

        Heads begin with zeros: all classes are equally likely, whatever the seed.
        """
        self.num_levels = num_levels
        hidden_size = self.sizes()[1].hidden_size
        for level, number in num_classes.items():
            head = nn.Linear(hidden_size, number)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            self.heads[str(level)] = head

    def forward(
        self,
        *,
        input_ids: torch.Tensor,
        supervised: torch.Tensor,
        targets: torch.Tensor,
        vision: VisionInputs,
        position_ids: torch.Tensor | None = None,
        packing: Packing | None = None,
        levels: torch.Tensor | None = None,
        classes: Mapping[int, ClassPlaces] | None = None,
        image_places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Summed cross-entropy over what is learned of each level, in nats.

        The sum, not the mean: the caller knows how much all ranks have to learn in a step.

        Args:
            input_ids: int64 [num_rows, length], padded on the right, where a causal model never
                looks: attention needs no mask.
            supervised: int64 [num_supervised]: places in the rows, one after the other, at which
                the next token is learned.
            targets: int64 [num_supervised]: those tokens.
            vision: What `layout.arrange` made of the batch's images; empty without any.
            position_ids: int64 [num_rows, length], or as `layout.needs` makes them. They begin anew
                in each sample. None: tokens are counted.
            packing: Where samples begin, which keeps attention within them. None: transformers
                takes the borders from positions, and makes a mask from them.
            levels: int64 [num_supervised]: of each token; None if there is one level.
            classes: By level that is told by class, where its answers begin and which they are.
            image_places: int64 [num_image_tokens]: places of image tokens in the rows, one after
                the other. None: they are looked up, for which a GPU's host waits (SYNC).

        Returns:
            float32 [num_levels]. In training every parameter that can have a gradient has one, so
            that all ranks enter the same collectives whatever their batches hold.
        """
        hidden, unused = self.hidden_states(input_ids, vision, position_ids, packing, image_places)
        hidden = hidden.flatten(0, 1)
        losses = unused + summed_cross_entropy(
            self.output_head(), hidden[supervised], targets, levels, self.num_levels
        )
        for level, (places, answers) in (classes or {}).items():
            losses = losses + self._told_loss(level, hidden[places], answers)
        return losses

    def _told_loss(self, level: int, hidden: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Of a level that is told by class, at its place: float32 [num_levels]."""
        loss = functional.cross_entropy(self.class_logits(level, hidden), answers, reduction="sum")
        return loss * (torch.arange(self.num_levels, device=loss.device) == level)

    def class_logits(self, level: int, hidden: torch.Tensor) -> torch.Tensor:
        """What the head of a level says: float [num, hidden_size] to float32 [num, num_classes]."""
        logits: torch.Tensor = self.heads[str(level)](hidden)
        return logits.float()

    @abc.abstractmethod
    def hidden_states(
        self,
        input_ids: torch.Tensor,
        vision: VisionInputs,
        position_ids: torch.Tensor | None,
        packing: Packing | None = None,
        image_places: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The language model's last hidden states, and a zero that depends on what was not used.

        Without an image this zero is added to what enters the layers, so that it has a gradient
        wherever a picture's would have one. fully_shard reduces a layer's gradients when those of
        its inputs are there, or at the end of the pass where its inputs have none: ranks would
        reduce in unlike orders.

        Args:
            input_ids: As for `forward`.
            vision: As for `forward`.
            position_ids: As for `forward`.
            packing: As for `forward`.
            image_places: As for `forward`.

        Returns:
            Float [num_rows, length, hidden_size], and a scalar.
        """

    @abc.abstractmethod
    def output_head(self) -> nn.Module:
        """From hidden states to logits."""

    @abc.abstractmethod
    def towers(self) -> list[list[nn.Module]]:
        """Layers in the order in which they run, one list a tower: the units of sharding."""

    @abc.abstractmethod
    def sizes(self) -> tuple[TowerSizes, TowerSizes]:
        """Of the vision tower and of the language model."""

    @abc.abstractmethod
    def part_prefixes(self) -> Mapping[Literal["projector", "vision"], tuple[str, ...]]:
        """What names of parameters begin with, by part, the first that fits; the rest is language.

        In some families the projector lies within the vision tower.
        """

    def root(self) -> nn.Module:
        """The module whose names are those of the model's own files."""
        return self

    def tied_weights(self) -> Mapping[str, str]:
        """Names of weights that are others by another name, and these others'.

        An output head is, where it is the input embeddings.
        """
        return {}

    def unused_parameters(self) -> frozenset[str]:
        """Names of parameters on which nothing depends, and which therefore stay frozen."""
        return frozenset()

    @property
    @abc.abstractmethod
    def max_positions(self) -> int | None:
        """Longest sequence of the language model in tokens; None if it has no limit."""

    @property
    @abc.abstractmethod
    def patch_size(self) -> int:
        """Side of what the vision tower takes as one patch, in pixels."""

    @property
    @abc.abstractmethod
    def text_config(self) -> Any:
        """Config of transformers for the language model."""

    @property
    def attention_name(self) -> str:
        """Which attention implementation runs (`sdpa`, `eager`)."""
        return str(self.text_config._attn_implementation)  # noqa: SLF001 - no public name

    @abc.abstractmethod
    def save_pretrained(
        self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
    ) -> Mapping[str, torch.Tensor]:
        """Write config and weights; `weights` (by this model's names) stand in for sharded ones.

        The caller makes the folder appear whole.

        Returns:
            What must be found on disk, under the names that are used there.
        """

    @abc.abstractmethod
    def generate(self, prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[list[int]]:
        """The likeliest next token again and again, until the end token or `max_new_tokens`.

        The model is in eval mode, and whole (not sharded).

        Returns:
            One answer a prompt, without the end token.
        """


def put_features(
    embeddings: torch.Tensor, features: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Replace the embeddings of image tokens by the features of images, in order; no SYNC.

    `masked_scatter` would ask the device in its backward pass how many tokens these are.

    Args:
        embeddings: Float [num_rows, length, hidden].
        features: Float [num_image_tokens, hidden].
        places: int64 [num_image_tokens]: places in the rows, one after the other.

    Raises:
        ValueError: There are not as many features as image tokens.
    """
    if len(places) != len(features):
        message = f"{len(places)} image tokens do not fit {len(features)} features of images"
        raise ValueError(message)
    # Not by a view of all rows: a layer that is compiled would be compiled once more for a view.
    return embeddings.index_put(rows_and_columns(places, embeddings), features.to(embeddings.dtype))


def rows_and_columns(
    places: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of places that count through the rows of `values`: [rows, length, ..]."""
    length = values.shape[1]
    return places // length, places % length


def find_places(input_ids: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return the places of image tokens in the rows, one after the other; SYNC on a GPU."""
    return (input_ids == image_token_id).flatten().nonzero().flatten()


def zero_of(features: torch.Tensor) -> torch.Tensor:
    """Return a float32 zero with a gradient path to `features`, whatever they hold.

    `0.0 * features.sum()` is NaN where a feature has overflowed under fp16.
    """
    return 0.0 * torch.nan_to_num(features.float(), nan=0.0, posinf=0.0, neginf=0.0).sum()
