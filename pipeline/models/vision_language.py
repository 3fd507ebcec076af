"""Interface of all vision-language models for training: inputs, loss and generation."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from pipeline.data.batches.learned_targets import ClassPlaces, TargetGroups
from pipeline.models.attention_kernels.packed_rows import Packing
from pipeline.models.cross_entropy import summed_cross_entropy
from pipeline.models.generation import Prompt
from pipeline.models.layouts.image_layout import ImageLayout, VisionInputs

HEADS_PREFIX = "heads."
"""Prefix of the names of classifier heads' parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TowerSizes:
    """Sizes of a tower that determine its work."""

    hidden_size: int
    num_layers: int


class VisionLanguageModel(nn.Module, abc.ABC):
    """Model from images and text to loss or text."""

    layout: ImageLayout
    """Layout of its image input."""
    why_vision_not_compiled: str = ""
    """Reason why layers of the vision tower cannot be compiled; empty if they can."""
    block_layers: frozenset[str] = frozenset()
    """Kinds of layers of the language model in which the tokens of an image all see each other,
    also later ones, by their names in `layer_types` of transformers."""
    why_language_not_compiled: str = ""
    """Reason why layers of the language model cannot be compiled; empty if they can."""
    logit_cap: float | None = None
    """Limit of logits, which approach it as a hyperbolic tangent; None: no limit."""
    uses_varlen: bool = False
    """True if attention takes the bounds of packed samples and of images of varying size,
    instead of a dense mask and one call for each size."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        """Linear classifier heads, by number of the level."""

    def add_heads(self, num_classes: Mapping[int, int]) -> None:
        """Add a classifier head to the levels of `num_classes`.

        Heads start with zeros: all classes are equally likely, whatever the seed.
        """
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
        groups: TargetGroups | None = None,
        classes: Mapping[int, ClassPlaces] | None = None,
        image_places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the summed cross-entropy of the targets of each group, in nats.

        The sum, not the mean: the caller knows the number of targets of all ranks in a step.

        Args:
            input_ids: int64 [num_rows, length], padded on the right, which a causal model never
                reads: attention needs no mask.
            supervised: int64 [num_supervised]: positions, in the concatenated rows, whose next
                token is a target.
            targets: int64 [num_supervised]: those tokens.
            vision: Result of `layout.arrange` for the batch's images; empty without any.
            position_ids: int64 [num_rows, length], or as `layout.needs` makes them. They
                restart in each sample. None: positions count tokens.
            packing: Bounds of samples, which limit attention. None: transformers derives the
                bounds from positions, and builds a mask from them.
            groups: Groups of the targets; None for a single one.
            classes: Positions before the answers, and the answers' classes, for levels with a
                head. The groups are then the levels.
            image_places: int64 [num_image_tokens]: positions of image tokens in the
                concatenated rows. None: they are searched for, for which a GPU's host waits
                (SYNC).

        Returns:
            float32 [num_groups]. In training every trainable parameter gets a gradient, so
            that all ranks enter the same collectives whatever their batches contain.
        """
        hidden, unused = self.hidden_states(input_ids, vision, position_ids, packing, image_places)
        hidden = hidden.flatten(0, 1)
        losses = unused + summed_cross_entropy(
            self.output_head(),
            hidden[supervised],
            targets,
            groups,
            logit_cap=self.logit_cap,
        )
        for level, (places, answers) in (classes or {}).items():
            is_its = torch.arange(len(losses), device=losses.device) == level
            losses = losses + is_its * self._class_loss(level, hidden[places], answers)
        return losses

    def _class_loss(self, level: int, hidden: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        logits = self.class_logits(level, hidden)
        return functional.cross_entropy(logits, answers, reduction="sum")

    def class_logits(self, level: int, hidden: torch.Tensor) -> torch.Tensor:
        """Compute the head of a level: float [num, hidden_size] to float32 [num, num_classes]."""
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
        """Return the last hidden states, and a zero that depends on unused parts.

        Without an image this zero is added to the input of the layers, so that the input has a
        gradient wherever images would give it one. fully_shard reduces a layer's gradients when
        those of its inputs are ready, or at the end of the pass if its inputs have none: ranks
        would reduce in different orders.

        Args:
            input_ids: See `forward`.
            vision: See `forward`.
            position_ids: See `forward`.
            packing: See `forward`.
            image_places: See `forward`.

        Returns:
            Float [num_rows, length, hidden_size], and a scalar.
        """

    @abc.abstractmethod
    def output_head(self) -> nn.Module:
        """Return the module from hidden states to logits."""

    @abc.abstractmethod
    def towers(self) -> list[list[nn.Module]]:
        """Return the layers in order of execution, one list per tower: the units of sharding."""

    @abc.abstractmethod
    def sizes(self) -> tuple[TowerSizes, TowerSizes]:
        """Return the sizes of the vision tower and of the language model."""

    @abc.abstractmethod
    def part_prefixes(self) -> Mapping[Literal["projector", "vision"], tuple[str, ...]]:
        """Return prefixes of parameter names by part; the first match counts, the rest is language.

        In some families the projector is within the vision tower.
        """

    def root(self) -> nn.Module:
        """Return the module whose names are those of the model's own files."""
        return self

    def tied_weights(self) -> Mapping[str, str]:
        """Return the names of tied weights, with the names of the weights they equal.

        An output head may be tied to the input embeddings.
        """
        return {}

    def unused_parameters(self) -> frozenset[str]:
        """Return the names of parameters that affect no output, and so stay frozen."""
        return frozenset()

    @property
    @abc.abstractmethod
    def max_positions(self) -> int | None:
        """Longest sequence of the language model in tokens; None if it has no limit."""

    @property
    @abc.abstractmethod
    def patch_size(self) -> int:
        """Side of a patch of the vision tower, in pixels."""

    @property
    @abc.abstractmethod
    def text_config(self) -> Any:
        """Config of transformers for the language model."""

    @property
    def attention_name(self) -> str:
        """Name of the attention implementation in use (`sdpa`, `eager`)."""
        return str(self.text_config._attn_implementation)  # noqa: SLF001 - no public name

    @abc.abstractmethod
    def save_pretrained(
        self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
    ) -> Mapping[str, torch.Tensor]:
        """Write config and weights; `weights` (by this model's names) replace sharded ones.

        The caller makes the folder appear atomically.

        Returns:
            Expected contents of the files, by the names in them.
        """

    @abc.abstractmethod
    def generate(self, prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[list[int]]:
        """Generate greedily until the end token or `max_new_tokens`.

        The model is in eval mode, and not sharded.

        Returns:
            One answer per prompt, without the end token.
        """
