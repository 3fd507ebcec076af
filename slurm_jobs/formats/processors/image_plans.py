"""Plan of an image, from its size alone, for each kind of image processor."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Size = tuple[int, int]
"""Width and height in pixels, as in Pillow."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; the last two are exclusive."""


Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""


class UnfitImageError(ValueError):
    """Image whose shape the processor does not accept."""


def check_sides(size: Size) -> None:
    """Raise UnfitImageError for a size that is no picture: each side has at least one pixel."""
    if min(size) < 1:
        message = f"{size[0]} x {size[1]} pixels are no picture; each side has at least 1 pixel"
        raise UnfitImageError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Steps from the upright image to one stored array."""

    resizes: tuple[Size, ...]
    """Sizes of successive resize steps, with the processor's filter."""
    box: Box | None = None
    """Region to cut out after that, black beyond the edge; None for the whole image."""
    square: Colour | None = None
    """Colour with which the image is first padded on both sides to a square; None: it is not."""

    @property
    def size(self) -> Size:
        """Return the size of the stored array."""
        if self.box is None:
            return self.resizes[-1]
        left, top, right, bottom = self.box
        return right - left, bottom - top


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePlan:
    """Arrays and text for one image of a row."""

    recipes: tuple[Recipe, ...]
    """One recipe for each stored array, in the order that the model expects."""
    placeholder: tuple[tuple[str, int], ...]
    """Replacement for the one image token in the text: pieces of text, each with its number of
    repetitions."""

    @property
    def text(self) -> str:
        """Return the placeholder as the processor of Hugging Face would write it."""
        return "".join(piece * count for piece, count in self.placeholder)

    @property
    def num_pixels(self) -> int:
        """Return the number of pixels of all stored arrays."""
        return sum(width * height for width, height in (recipe.size for recipe in self.recipes))


class ImageRules(ABC):
    """Rules of a kind of image processor; each kind is a frozen dataclass."""

    __slots__ = ()
    image_token: str
    """Token in whose place the model puts a feature of an image."""
    wrapping: tuple[str, str] | None = None
    """Tokens that the template prints before and after an image, as part of it."""

    def plan(self, size: Size, *, num_images: int = 1) -> ImagePlan:
        """Return the plan for an upright image of this size, one of `num_images` of its row.

        Raises:
            UnfitImageError: the processor accepts no image of this shape, or a side is no length.
        """
        check_sides(size)
        return self._plan(size) if num_images == 1 else self._plan_of_several(size)

    @abstractmethod
    def _plan(self, size: Size) -> ImagePlan:
        """Return the plan for sides of at least one pixel; raise UnfitImageError like `plan`."""

    @property
    def printed_token(self) -> str:
        """Token that the chat template prints for an image."""
        return self.image_token

    @property
    def written(self) -> str:
        """Text that replaces the printed token before the text is tokenised.

        It has `image_token` once, which the placeholder replaces.
        """
        return self.printed_token

    def _plan_of_several(self, size: Size) -> ImagePlan:
        """Return the plan for an image of a row that has several; like `_plan`."""
        return self._plan(size)

    def pieces(self) -> frozenset[str]:
        """Return all pieces of text that the placeholder of any plan may have."""
        return frozenset({self.image_token})

    @abstractmethod
    def model_inputs(self) -> Mapping[str, Any]:
        """Return the fields of `DatasetInfo` that describe the stored arrays."""


NO_INPUTS: Mapping[str, None] = dict.fromkeys(
    (
        "image_kind",
        "image_height",
        "image_width",
        "num_image_tokens",
        "patch_size",
        "merge_size",
        "temporal_patch_size",
    )
)
"""Fields of `DatasetInfo` that `ImageRules.model_inputs` gives, each without a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedImages(ImageRules):
    """Rules for a single size of all images: SigLIP, CLIP, and LLaVA 1.5 with either."""

    height: int
    width: int
    shortest_edge: int | None
    """Size of the shorter side before the middle is cut out; None resizes both sides."""
    image_token: str
    num_image_tokens: int

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as transformers' `PilBackend.resize` and `center_crop`; every shape is accepted."""
        if self.shortest_edge is None:
            recipe = Recipe(resizes=((self.width, self.height),))
        else:
            shorter, longer = sorted(size)
            edge, long_edge = self.shortest_edge, int(self.shortest_edge * longer / shorter)
            width, height = (edge, long_edge) if size[0] <= size[1] else (long_edge, edge)
            left, top = (width - self.width) // 2, (height - self.height) // 2
            box = (left, top, left + self.width, top + self.height)
            recipe = Recipe(resizes=((width, height),), box=box)
        placeholder = ((self.image_token, self.num_image_tokens),)
        return ImagePlan(recipes=(recipe,), placeholder=placeholder)

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            **NO_INPUTS,
            "image_kind": "fixed",
            "image_height": self.height,
            "image_width": self.width,
            "num_image_tokens": self.num_image_tokens,
        }


MAX_LONGEST_EDGE = 4096
"""`MAX_IMAGE_SIZE` of transformers' `image_processing_pil_idefics3`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdeficsTiles(ImageRules):
    """Rules for tiles row by row, then the whole image: Idefics3 and SmolVLM."""

    longest_edge: int
    """Longer side to which every image is first resized, smaller ones too."""
    tile_size: int
    split: bool
    """False for the whole image alone."""
    image_token: str
    fake_token: str
    """Token before and after the tokens of each tile."""
    global_token: str
    num_image_tokens: int

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as `Idefics3ImageProcessor` and `Idefics3Processor`, which SmolVLM's copy."""
        fitted = _limit(_stretch(size, self.longest_edge))
        tile = (self.tile_size, self.tile_size)
        whole = _round_up(fitted, self.tile_size) if self.split else tile
        if whole == tile:
            return ImagePlan(
                recipes=(Recipe(resizes=(fitted, tile)),), placeholder=self._placeholder(0, 0)
            )
        num_cols, num_rows = (side // self.tile_size for side in whole)
        starts = itertools.product(range(0, whole[1], tile[1]), range(0, whole[0], tile[0]))
        tiles = (
            Recipe(resizes=(fitted, whole), box=(x, y, x + tile[0], y + tile[1])) for y, x in starts
        )
        return ImagePlan(
            recipes=(*tiles, Recipe(resizes=(fitted, whole, tile))),
            placeholder=self._placeholder(num_rows, num_cols),
        )

    def _placeholder(self, num_rows: int, num_cols: int) -> tuple[tuple[str, int], ...]:
        pixels = (self.image_token, self.num_image_tokens)
        whole = ((self.fake_token, 1), (self.global_token, 1), pixels, (self.fake_token, 1))
        if not num_rows:
            return whole
        pieces: list[tuple[str, int]] = []
        for row in range(num_rows):
            for col in range(num_cols):
                pieces += [(self.fake_token, 1), (_place(row, col), 1), pixels]
            pieces.append(("\n" if row < num_rows - 1 else "\n\n", 1))
        return (*pieces, *whole)

    def pieces(self) -> frozenset[str]:
        """Return the pieces, including the marks of all tile positions."""
        most = math.ceil(min(self.longest_edge, MAX_LONGEST_EDGE) / self.tile_size)
        places = {_place(row, col) for row in range(most) for col in range(most)}
        names = {self.image_token, self.fake_token, self.global_token}
        return frozenset({"\n", "\n\n"} | places | names)

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            **NO_INPUTS,
            "image_kind": "tiled",
            "image_height": self.tile_size,
            "image_width": self.tile_size,
            "num_image_tokens": self.num_image_tokens,
        }


def _place(row: int, col: int) -> str:
    return f"<row_{row + 1}_col_{col + 1}>"


def _stretch(size: Size, longest_edge: int) -> Size:
    """Set the longer side and make the other even: `_resize_output_size_rescale_to_max_len`."""
    width, height = size
    ratio = width / height
    if width >= height:
        width, height = longest_edge, int(longest_edge / ratio)
        height += height % 2
    else:
        width, height = int(longest_edge * ratio), longest_edge
        width += width % 2
    return max(width, 1), max(height, 1)


def _limit(size: Size) -> Size:
    """Limit both sides to `MAX_LONGEST_EDGE`: `_resize_output_size_scale_below_upper_bound`."""
    width, height = size
    ratio = width / height
    if width >= height and width > MAX_LONGEST_EDGE:
        width, height = MAX_LONGEST_EDGE, int(MAX_LONGEST_EDGE / ratio)
    elif height > width and height > MAX_LONGEST_EDGE:
        width, height = int(MAX_LONGEST_EDGE * ratio), MAX_LONGEST_EDGE
    return max(width, 1), max(height, 1)


def _round_up(size: Size, tile_size: int) -> Size:
    """Round both sides up to whole tiles: `resize_for_vision_encoder`."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile_size) * tile_size
        height = math.ceil(int(width / ratio) / tile_size) * tile_size
    else:
        height = math.ceil(height / tile_size) * tile_size
        width = math.ceil(int(height * ratio) / tile_size) * tile_size
    return width, height


_MAX_ASPECT_RATIO = 200
"""Limit of `smart_resize`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeImages(ImageRules):
    """Rules for sides that are multiples of `patch_size * merge_size`: the Qwen2-VL family."""

    patch_size: int
    merge_size: int
    """Side, in patches, of the square that becomes one token."""
    temporal_patch_size: int
    """Number of times that the model repeats a still image in time; the copies are not stored."""
    min_pixels: int
    max_pixels: int
    image_token: str
    wrapping: tuple[str, str]

    def _plan(self, size: Size) -> ImagePlan:
        """Plan as transformers' `Qwen2VLImageProcessor` and `Qwen2VLProcessor`.

        Raises:
            UnfitImageError: one side is more than 200 times the other.
        """
        width, height = smart_resize(
            self._grown(size),
            factor=self.patch_size * self.merge_size,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        num_patches = (width // self.patch_size) * (height // self.patch_size)
        return ImagePlan(
            recipes=(Recipe(resizes=((width, height),)),),
            placeholder=((self.image_token, num_patches // self.merge_size**2),),
        )

    def _grown(self, size: Size) -> Size:
        """Return the size to begin with, in processors that first enlarge thin images."""
        return size

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            **NO_INPUTS,
            "image_kind": "native",
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": self.temporal_patch_size,
        }


def smart_resize(size: Size, *, factor: int, min_pixels: int, max_pixels: int) -> Size:
    """Return the size of a resized image, by transformers' function and arithmetic.

    Raises:
        UnfitImageError: one side is more than 200 times the other, or shorter than a pixel.
    """
    check_sides(size)
    width, height = size
    ratio = max(size) / min(size)
    if ratio > _MAX_ASPECT_RATIO:
        message = (
            f"one side is {ratio:.0f} times the other, the processor takes {_MAX_ASPECT_RATIO}"
        )
        raise UnfitImageError(message)
    new_width, new_height = (round(side / factor) * factor for side in size)
    if new_width * new_height > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        new_width, new_height = (
            max(factor, math.floor(side / shrink / factor) * factor) for side in size
        )
    elif new_width * new_height < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_width, new_height = (math.ceil(side * grow / factor) * factor for side in size)
    return new_width, new_height
