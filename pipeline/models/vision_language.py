"""Interface of a vision-language model: inputs, loss, generation and limits of positions."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from pipeline.data.batch import ClassPlaces
from pipeline.data.format import DatasetInfo
from pipeline.data.index import DatasetIndex
from pipeline.models.layouts import ImageLayout, StoredImages, VisionInputs
from pipeline.models.segments import Packing, picture_segments
from slurm_jobs.shared.errors import StageError

# Loss of the learned tokens, without computing the logits of all others.


CHUNK = 1024
"""Tokens whose logits are in memory at a time. With a vocabulary of 152,000 they take 1.5 GB in
bf16, fp32 and as a gradient; those of a whole batch would exceed the layers of a small model."""


def summed_cross_entropy(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    levels: torch.Tensor | None = None,
    num_levels: int = 1,
) -> torch.Tensor:
    """Return the cross-entropy summed over the tokens of each level, in nats.

    Logits beyond one chunk are recomputed in the backward pass.

    Args:
        head: Maps hidden states to logits.
        hidden: Float [num_tokens, hidden_size]; num_tokens may be 0.
        targets: int64 [num_tokens].
        levels: int64 [num_tokens]; None if there is one level.
        num_levels: Number of levels.

    Returns:
        float32 [num_levels]; every parameter of the head has a gradient, zero without a token.
    """
    if levels is None:
        levels = torch.zeros_like(targets)
    if len(targets) <= CHUNK:
        return _of_chunk(head, hidden, targets, levels, num_levels)
    pieces = zip(hidden.split(CHUNK), targets.split(CHUNK), levels.split(CHUNK), strict=True)
    losses = [
        checkpoint(_of_chunk, head, *piece, num_levels, use_reentrant=False) for piece in pieces
    ]
    return torch.stack(losses).sum(0)


def _of_chunk(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    levels: torch.Tensor,
    num_levels: int,
) -> torch.Tensor:
    losses = functional.cross_entropy(head(hidden).float(), targets, reduction="none")
    if num_levels == 1:
        return losses.sum()[None]
    # A product, because adding by index is not deterministic on GPUs.
    return losses @ functional.one_hot(levels, num_levels).to(losses.dtype)


# Interface of all vision-language models for training.


HEADS_PREFIX = "heads."
"""Prefix of the names of classifier heads' parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TowerSizes:
    """Sizes of a tower that determine its work."""

    hidden_size: int
    num_layers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Conversation that the model is to continue."""

    input_ids: Sequence[int]
    """Image tokens expanded."""
    images: StoredImages
    """On the host."""


class VisionLanguageModel(nn.Module, abc.ABC):
    """Model from images and text to loss or text."""

    layout: ImageLayout
    """Layout of its image input."""
    num_levels: int = 1
    """Number of chained targets of a sample."""
    why_vision_not_compiled: str = ""
    """Reason why layers of the vision tower cannot be compiled; empty if they can."""
    uses_varlen: bool = False
    """True if attention takes the bounds of packed samples and of images of varying size,
    instead of a dense mask and one call for each size."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        """Linear classifier heads, by number of the level."""

    def add_heads(self, num_levels: int, num_classes: Mapping[int, int]) -> None:
        """Prepare for levels; those of `num_classes` get a classifier head.

        Heads start with zeros: all classes are equally likely, whatever the seed.
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
        """Return the summed cross-entropy of the targets of each level, in nats.

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
            levels: int64 [num_supervised]: level of each target; None if there is one level.
            classes: Positions before the answers, and the answers' classes, for levels with a
                head.
            image_places: int64 [num_image_tokens]: positions of image tokens in the
                concatenated rows. None: they are searched for, for which a GPU's host waits
                (SYNC).

        Returns:
            float32 [num_levels]. In training every trainable parameter gets a gradient, so
            that all ranks enter the same collectives whatever their batches contain.
        """
        hidden, unused = self.hidden_states(input_ids, vision, position_ids, packing, image_places)
        hidden = hidden.flatten(0, 1)
        losses = unused + summed_cross_entropy(
            self.output_head(), hidden[supervised], targets, levels, self.num_levels
        )
        for level, (places, answers) in (classes or {}).items():
            losses = losses + self._class_loss(level, hidden[places], answers)
        return losses

    def _class_loss(self, level: int, hidden: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Return the loss of a level with a head, at its index: float32 [num_levels]."""
        loss = functional.cross_entropy(self.class_logits(level, hidden), answers, reduction="sum")
        return loss * (torch.arange(self.num_levels, device=loss.device) == level)

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


def put_features(
    embeddings: torch.Tensor, features: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Replace the embeddings of image tokens by image features, in order; no SYNC.

    The backward pass of `masked_scatter` would read their number from the device.

    Args:
        embeddings: Float [num_rows, length, hidden].
        features: Float [num_image_tokens, hidden].
        places: int64 [num_image_tokens]: positions in the concatenated rows.

    Raises:
        ValueError: the number of features differs from that of image tokens.
    """
    if len(places) != len(features):
        message = f"{len(places)} image tokens do not fit {len(features)} features of images"
        raise ValueError(message)
    # Not by a view of all rows, for which a compiled layer would be compiled again.
    return embeddings.index_put(rows_and_columns(places, embeddings), features.to(embeddings.dtype))


def rows_and_columns(
    places: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and column indices of positions in the concatenated rows of `values`."""
    length = values.shape[1]
    return places // length, places % length


def find_places(input_ids: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return the positions of image tokens in the concatenated rows; SYNC on a GPU."""
    return (input_ids == image_token_id).flatten().nonzero().flatten()


def zero_of(features: torch.Tensor) -> torch.Tensor:
    """Return a float32 zero with a gradient path to `features`, whatever their values.

    `0.0 * features.sum()` is NaN where a feature has overflowed under fp16.
    """
    return 0.0 * torch.nan_to_num(features.float(), nan=0.0, posinf=0.0, neginf=0.0).sum()


# Common parts of greedy generation in batches.


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad token ids and attention mask, int64 [batch, tokens], so all prompts end in one column."""
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)


def before(answer: list[int], end_id: int) -> list[int]:
    """Return the answer up to its first end token."""
    return answer[: answer.index(end_id)] if end_id in answer else answer


def arrange_prompts(
    prompts: Sequence[Prompt], layout: ImageLayout, device: torch.device, dtype: torch.dtype
) -> VisionInputs:
    """Return the input of the vision tower for the images of all prompts; empty without any."""
    images = [prompt.images for prompt in prompts if len(prompt.images.sizes)]
    if not images:
        return {}
    originals = [
        image_set.original_sizes for image_set in images if image_set.original_sizes is not None
    ]
    joined = StoredImages(
        pixels=torch.cat([image_set.pixels for image_set in images]).to(device),
        sizes=torch.cat([image_set.sizes for image_set in images]),
        original_sizes=torch.cat(originals) if originals else None,
    )
    return layout.arrange(joined, dtype)


# Inputs of Qwen's vision towers that follow from image sizes, computed on the host.
#
# Given sizes on the device, transformers would compute them there and read them back: the lengths
# of images in each layer, three times, and as often again where layers are recomputed. At each
# read the host waits until the device has done all queued work. The towers accept all of it as
# arguments instead (`transformers.vision_utils`), by the names used here: lengths, which are only
# read, stay on the host, and tensors for computing are copied to the device.


_LONGEST = {"cu_seqlens": "max_seqlen", "cu_window_seqlens": "max_window_seqlen"}
"""transformers' name of the length of the longest segment, by the name of its bounds."""

FollowFromGrids = Callable[[torch.Tensor, Any], Mapping[str, torch.Tensor]]
"""Maps int64 [num_images, 3] on the host and a vision tower to its arguments, on the host."""


def lengths_and_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return the bounds of images, and row and column of each patch, for Qwen2-VL."""
    return {
        "cu_seqlens": get_vision_cu_seqlens(grids),
        "position_ids": get_vision_position_ids(grids, tower.spatial_merge_size),
    }


def with_windows(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return also which patches see each other in most layers, for Qwen2.5-VL."""
    order, bounds = get_vision_window_index(
        grids,
        spatial_merge_size=tower.spatial_merge_size,
        window_size=tower.window_size,
        patch_size=tower.patch_size,
    )
    windows = {"window_index": order, "cu_window_seqlens": bounds}
    return lengths_and_places(grids, tower) | windows


def with_learned_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return also the weights of each patch in the learned positions, for Qwen3-VL."""
    indices, weights = get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.spatial_merge_size,
    )
    shares = {"interp_indices": indices, "interp_weights": weights}
    return lengths_and_places(grids, tower) | shares


def plain_arguments(vision: VisionInputs, device: torch.device) -> dict[str, torch.Tensor]:
    """Return the arguments as tensors, as in transformers; SYNC: to a GPU sizes are copied."""
    return {
        name: value if isinstance(value, torch.Tensor) else torch.tensor(value, device=device)
        for name, value in vision.items()
    }


def tower_arguments(
    vision: VisionInputs, follow: FollowFromGrids | None, tower: Any, *, uses_varlen: bool = False
) -> dict[str, Any]:
    """Return the arguments of `get_image_features`: sizes on the host, and derived values; no SYNC.

    `uses_varlen`: True if the attention kernel takes the bounds of images.
    """
    arguments = plain_arguments(vision, torch.device("cpu"))
    if follow is None:
        return arguments
    move = functools.partial(_queue_copy, device=arguments["pixel_values"].device)
    followed = follow(arguments["image_grid_thw"], tower)
    borders = {name: value for name, value in followed.items() if name.startswith("cu_")}
    copied = {name: move(value) for name, value in followed.items() if name not in borders}
    if uses_varlen:
        moved = {name: move(bounds.to(torch.int32)) for name, bounds in borders.items()}
        longest = {_LONGEST[name]: int(bounds.diff().max()) for name, bounds in borders.items()}
        return {**arguments, **copied, **moved, **longest, "uses_varlen": True}
    # Lengths are only read, by `tolist`.
    segments = {len(bounds): picture_segments(bounds, move) for bounds in borders.values()}
    return {**arguments, **copied, **borders, "segments": segments}


def _queue_copy(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from pinned memory, because from other memory the host may wait for the device."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)


# Checks that the samples of a data set fit the positions of a language model.
#
# A rotary embedding computes any position, so a sample that is too long trains without an error,
# on positions that the model never saw or that exceed its config. Programs that serve the model
# (vLLM, TGI) then refuse such prompts. To extend the context, set it in config.json:
# `max_position_embeddings`, or the scaling of `rope_parameters`.


_BLOCK_ROWS = 1 << 20


def max_positions(language: Any) -> int | None:
    """Return the longest sequence that a language model's config allows; None if it has no limit.

    A scaled rotary embedding reaches `factor` times its training length. Configs state that
    reach, or only the original length and the factor: the greater value counts.
    """
    for name in ("max_position_embeddings", "n_positions"):
        limit = getattr(language, name, None)
        if limit:
            break
    else:
        return None
    rope = getattr(language, "rope_parameters", None) or {}
    by_layer = [each for each in rope.values() if isinstance(each, Mapping)]  # Gemma 3's
    reaches = [_reach(each, limit) for each in by_layer or [rope]]
    return int(max(limit, *reaches))


def _reach(rope: Mapping[str, Any], limit: int) -> float:
    original = rope.get("original_max_position_embeddings") or limit
    factor = rope.get("factor") if rope.get("rope_type", "default") != "default" else None
    return float(original * (factor or 1))


def longest_sample(index: DatasetIndex, info: DatasetInfo, limit: int) -> tuple[int, int]:
    """Return the positions of the longest sample, and how many samples have more than `limit`.

    A token has one position, except for the tokens of a `native` image: these are numbered by row
    and column, so an image of T tokens takes at least sqrt(T) positions. Sizes of single images
    are not in the index; for such data sets the numbers are lower bounds.

    Raises:
        StageError: a column of the index does not match its checksum.
    """
    lengths = index.whole("num_tokens")
    longest, num_over = 0, 0
    for start in range(0, len(lengths), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        positions = lengths[rows].astype(np.int64)
        if info.image_kind == "native":
            positions = _least_positions(positions, index, info, rows)
        if positions.size:
            longest = max(longest, int(positions.max()))
            num_over += int(np.count_nonzero(positions > limit))
    return longest, num_over


def _least_positions(
    lengths: np.ndarray, index: DatasetIndex, info: DatasetInfo, rows: slice
) -> np.ndarray:
    assert info.patch_size is not None  # a `native` data set
    assert info.merge_size is not None
    num_pixels = index.whole("num_pixels")[rows]
    num_image_tokens = num_pixels // (info.patch_size * info.merge_size) ** 2
    least = lengths - num_image_tokens + np.ceil(np.sqrt(num_image_tokens)).astype(np.int64)
    # Older data sets did not count pixels: samples with images cannot be judged there.
    unknown = (index.whole("num_images")[rows] > 0) & (num_pixels == 0)
    return np.where(unknown, 0, least)


def positions_problem(
    *, longest: int, limit: int, num_over: int, num_samples: int, source: str
) -> str | None:
    """Return why the samples do not fit, with the remedy; None if they do.

    Args:
        longest: Positions of the longest sample.
        limit: Limit of the language model.
        num_over: Samples with more than `limit`.
        num_samples: Number of all samples.
        source: The key or file that gives the limit, and how to raise it.
    """
    if longest <= limit:
        return None
    return (
        f"the longest sample has {longest:,} tokens, but the language model has {limit:,} "
        f"positions ({num_over:,} of {num_samples:,} samples are longer than that): preprocess "
        f"with max_tokens: {limit}, or {source}"
    )


# Tied weights: in most families the output head may be the embeddings.
#
# Files have such a weight once. A change under one name alone would be lost there. So adapters
# and 4 bits are refused for them (`compute`), and nothing that differs is dropped here.


def without_tied(
    weights: Mapping[str, torch.Tensor], tied: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    """Return the weights for a file, without tied duplicates.

    Args:
        weights: Full weights, by name.
        tied: Names of tied weights, with the names of the weights they equal.

    Raises:
        StageError: a weight differs from the one it is tied to, and would be lost.
    """
    for name, of in tied.items():
        if name in weights and of in weights and not torch.equal(weights[name], weights[of]):
            message = (
                f"{name} no longer equals {of}, but the model's config ties them "
                "(tie_word_embeddings): the export would lose what it learned; set "
                "tie_word_embeddings to false in the config.json of the model that is trained"
            )
            raise StageError(message)
    return {name: weight for name, weight in weights.items() if name not in tied}
