"""Layouts of stored images, one for each family of models."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from pipeline.data.batch import ModelNeeds, TokenRows
from pipeline.data.dataset import ImageSize
from pipeline.data.format import DatasetInfo
from slurm_jobs.shared.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


# Stored bytes to the input of a vision tower, on the device.


_PIXEL_MAX = 255
_NUM_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelScale:
    """Scales bytes to 0..1, subtracts a mean and divides by a deviation.

    One byte per channel is copied to the device, a quarter of the size of floats.
    """

    mean: tuple[float, ...]
    """Mean of each channel, after scaling to 0..1."""
    std: tuple[float, ...]
    """Deviation of each channel, after scaling to 0..1."""

    @classmethod
    def of_processor(
        cls, mean: Sequence[float], std: Sequence[float], rescale_factor: float
    ) -> PixelScale:
        """Return the scale of a processor that first multiplies bytes by `rescale_factor`."""
        # (pixel * rescale - mean) / std, written for pixels scaled by 1/255.
        factor = _PIXEL_MAX * rescale_factor
        return cls(mean=tuple(m / factor for m in mean), std=tuple(s / factor for s in std))

    def rounded(self) -> PixelScale:
        """Round, so that equal scales compare equal however they were computed."""
        mean, std = (tuple(round(v, _NUM_DIGITS) for v in vs) for vs in (self.mean, self.std))
        return PixelScale(mean=mean, std=std)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale uint8 [.., 3] to float32 of the same shape, on the same device."""
        scale, shift = _factors(self.mean, self.std, pixels.device)
        return pixels.to(torch.float32) * scale + shift


@functools.lru_cache(maxsize=16)
def _factors(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand of bytes: float32 [3] on the device."""
    scale = [1 / (255 * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    # SYNC: on a GPU two copies of three numbers, once per process.
    return torch.tensor(scale, device=device), torch.tensor(shift, device=device)


def stack_images(
    pixels: torch.Tensor, size: Sequence[int], scale: PixelScale, dtype: torch.dtype
) -> torch.Tensor:
    """Return images of one size as the input of a vision tower of that size.

    Args:
        pixels: uint8 [num_pixels, 3], all images concatenated.
        size: Height and width of every image.
        scale: Maps bytes to floats.
        dtype: Dtype of the result.

    Returns:
        `dtype` [num_images, 3, height, width].
    """
    stacked = scale(pixels).view(-1, *size, 3)
    return stacked.permute(0, 3, 1, 2).to(dtype).contiguous()


# Facts about the data set that a model needs.


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """Facts from `dataset.json` and from its tokenizer."""

    info: DatasetInfo
    eos_token_id: int
    """Token that ends an answer."""
    vocab_size: int
    """Number of tokens of the tokenizer."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """Number of each token; empty unless the tokenizer was loaded."""
    tokenizer: PreTrainedTokenizerFast | None = None
    """The tokenizer; None unless it was loaded."""

    @property
    def pixel_scale(self) -> PixelScale:
        """Scaling of bytes by the processor."""
        info = self.info
        return PixelScale.of_processor(info.image_mean, info.image_std, info.rescale_factor)


def read_facts(info: DatasetInfo, tokenizer: PreTrainedTokenizerFast) -> DataFacts:
    """Combine the facts of the data set and its tokenizer.

    Raises:
        StageConfigError: the tokenizer has no end token.
    """
    if tokenizer.eos_token_id is None:
        message = f"tokenizer {tokenizer.name_or_path}: no eos_token; generation would never end"
        raise StageConfigError(message)
    return DataFacts(
        info=info,
        eos_token_id=tokenizer.eos_token_id,
        vocab_size=len(tokenizer),
        vocabulary=tokenizer.get_vocab(),
        tokenizer=tokenizer,
    )


def load_tokenizer(processor_dir: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a processor folder, without access to a hub."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        processor_dir, local_files_only=True, trust_remote_code=False
    )


# Common interface of all layouts.


HostSizes = tuple[tuple[int, ...], ...]
"""Sizes of images, which a transformers model reads on the host.

Numbers instead of a tensor: a sharded root moves all tensor arguments to the device, and the
host would have to wait to read them back.
"""

VisionInputs = Mapping[str, torch.Tensor | HostSizes]
"""Keyword arguments of a vision tower, by their names in transformers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImages:
    """Images of a batch, on the device except for their sizes."""

    pixels: torch.Tensor
    """uint8 [num_pixels, 3] of all images, concatenated."""
    sizes: torch.Tensor
    """int64 [num_images, 2] on the host: height and width of each."""
    original_sizes: torch.Tensor | None
    """int64 [num_pictures, 2] on the host, of each original image before preprocessing."""


class ImageLayout(Protocol):
    """Image input of a family of models; values, without weights."""

    @property
    def needs(self) -> ModelNeeds:
        """Requirements for batches."""

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Return the input of the vision tower for one image or more."""

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Return the input for one small image, whose result is discarded.

        A rank whose batch has no image runs it, so that it enters the same collectives as
        others.
        """


# The whole image and tiles of it, matched by the image's size: LLaVA-NeXT.


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyresTiles:
    """`pixel_values` [num_tiles, 3, height, width], and `image_sizes` of original images."""

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""
    smallest_grid: tuple[int, int]
    """Height and width of the grid with the fewest tiles, of the model's `image_grid_pinpoints`."""

    @property
    def needs(self) -> ModelNeeds:
        """Sizes of the original images, from which the model assigns tiles to images."""
        return ModelNeeds(original_sizes=True)

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        assert images.original_sizes is not None
        tiles = stack_images(images.pixels, self.size, self.scale, dtype)
        sizes = tuple((height, width) for height, width in images.original_sizes.tolist())
        return {"pixel_values": tiles, "image_sizes": sizes}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        height, width = self.size
        num_tiles = (self.smallest_grid[0] // height) * (self.smallest_grid[1] // width)
        tiles = torch.ones(1 + num_tiles, 3, height, width, device=device, dtype=dtype)
        return {"pixel_values": tiles, "image_sizes": (self.smallest_grid,)}


# Images of varying size, cut into patches: Qwen2-VL, Qwen2.5-VL and Qwen3-VL.


@dataclass(frozen=True, kw_only=True, slots=True)
class NativePatches:
    """`pixel_values` [num_patches, values of a patch], and `image_grid_thw`, on the host.

    Tokens are numbered in three dimensions (M-RoPE, arXiv:2409.12191, section 2.1).
    """

    scale: PixelScale
    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token."""
    temporal_patch_size: int
    """Number of times an image is repeated in time."""
    image_token_id: int

    @property
    def needs(self) -> ModelNeeds:
        """Positions in three dimensions."""
        return ModelNeeds(make_positions=self.positions)

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        scaled = self.scale(images.pixels).to(dtype)
        sizes = images.sizes.tolist()
        each = scaled.split([height * width for height, width in sizes])
        patches = [
            self._cut(pixels.view(*size, 3)) for pixels, size in zip(each, sizes, strict=True)
        ]
        grids = tuple((1, h // self.patch_size, w // self.patch_size) for h, w in sizes)
        return {"pixel_values": torch.cat(patches), "image_grid_thw": grids}

    def _cut(self, image: torch.Tensor) -> torch.Tensor:
        """Cut [height, width, 3] to [num_patches, values], grouped by token."""
        patch, merge = self.patch_size, self.merge_size
        rows, columns = (side // (patch * merge) for side in image.shape[:2])
        cut = image.view(rows, merge, patch, columns, merge, patch, 3)
        in_order = cut.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 1, patch * patch)
        repeated = in_order.expand(-1, -1, self.temporal_patch_size, -1)
        return repeated.reshape(len(in_order), -1)

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        num_values = 3 * self.temporal_patch_size * self.patch_size**2
        return {
            "pixel_values": torch.ones(self.merge_size**2, num_values, device=device, dtype=dtype),
            "image_grid_thw": ((1, self.merge_size, self.merge_size),),
        }

    def positions(self, rows: TokenRows, image_sizes: Sequence[ImageSize]) -> np.ndarray:
        """Return int64 [3, num_rows, length]: time, height and width of each token in its sample.

        For packed rows [4, num_rows, length]: the first is the index of each token in its
        sample, which marks where samples begin. With only three, transformers would silently
        let samples see each other.
        """
        input_ids = rows.input_ids.reshape(-1)
        sides = iter([self._tokens_of(size) for size in image_sizes])
        places = np.empty((3, len(input_ids)), dtype=np.int64)
        for start, end in itertools.pairwise(rows.segment_bounds.tolist()):
            is_image = input_ids[start:end] == self.image_token_id
            _number(places[:, start:end], is_image, sides)
        places = places.reshape(3, *rows.input_ids.shape)
        return np.concatenate([rows.position_ids[None], places]) if rows.is_packed else places

    def _tokens_of(self, size: ImageSize) -> tuple[int, int]:
        """Return rows and columns of tokens of an image."""
        side = self.patch_size * self.merge_size
        return size[0] // side, size[1] // side


def _number(places: np.ndarray, is_image: np.ndarray, sides: Iterator[tuple[int, int]]) -> None:
    """Fill `places` int64 [3, num_tokens] of one sample; `sides` yields the sizes of its images.

    Text increments all three. An image begins at the next text position; the text after it
    continues from its longer side.
    """
    next_place, token, num_tokens = 0, 0, len(is_image)
    while token < num_tokens:
        if is_image[token]:
            num_rows, num_columns = next(sides)
            size = num_rows * num_columns
            places[:, token : token + size] = next_place + _grid(num_rows, num_columns)
            next_place += max(num_rows, num_columns)
        else:
            after = is_image[token:]
            size = int(after.argmax()) or num_tokens - token  # no image follows
            places[:, token : token + size] = np.arange(next_place, next_place + size)
            next_place += size
        token += size


@functools.lru_cache(maxsize=1024)
def _grid(num_rows: int, num_columns: int) -> np.ndarray:
    """Return int64 [3, num_rows * num_columns]: time, row and column of an image's tokens."""
    rows, columns = np.divmod(np.arange(num_rows * num_columns), num_columns)
    return np.stack([np.zeros_like(rows), rows, columns])


# Tiles of one size, all of a batch in one row: Idefics3 and SmolVLM.


@dataclass(frozen=True, kw_only=True, slots=True)
class TilesInOneRow:
    """`pixel_values` [1, num_tiles, 3, height, width], whatever the number of rows of text.

    These models pad rows that have fewer tiles than others with black ones, and drop tiles that
    are 0 throughout. A single row needs no padding, and so no mask of pixels.
    """

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every tile."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)[None]}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`; of ones, because zeros would be dropped."""
        return {"pixel_values": torch.ones(1, 1, 3, *self.size, device=device, dtype=dtype)}


# Images of one size, concatenated: LLaVA 1.5 and the built-in small model.


@dataclass(frozen=True, kw_only=True, slots=True)
class StackedImages:
    """`pixel_values` [num_images, 3, height, width]."""

    scale: PixelScale
    size: tuple[int, int]
    """Height and width of every image."""

    @property
    def needs(self) -> ModelNeeds:
        """No requirements."""
        return ModelNeeds()

    def arrange(self, images: StoredImages, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.arrange`."""
        return {"pixel_values": stack_images(images.pixels, self.size, self.scale, dtype)}

    def smallest(self, device: torch.device, dtype: torch.dtype) -> VisionInputs:
        """Implement `ImageLayout.smallest`."""
        return {"pixel_values": torch.ones(1, 3, *self.size, device=device, dtype=dtype)}
