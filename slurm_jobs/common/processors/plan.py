"""What becomes of one image, as values: the arrays to store, and what stands for it in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Size = tuple[int, int]
"""Width and height in pixels, as Pillow has them."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; the last two are not included."""


class UnfitImageError(ValueError):
    """The processor takes no image of this shape."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one stored array is made from the upright image."""

    resizes: tuple[Size, ...]
    """One after the other, by the processor's filter."""
    box: Box | None = None
    """What is cut out then; black where it reaches over the edge. None for all of it."""

    @property
    def size(self) -> Size:
        """Of the stored array."""
        if self.box is None:
            return self.resizes[-1]
        left, top, right, bottom = self.box
        return right - left, bottom - top


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePlan:
    """What one image of a row becomes."""

    recipes: tuple[Recipe, ...]
    """One for each stored array, in the order in which the model wants them."""
    placeholder: tuple[tuple[str, int], ...]
    """What stands in place of the one image token that the chat template prints: pieces of text,
    each with how often it is repeated."""

    @property
    def text(self) -> str:
        """The placeholder as the processor of Hugging Face would write it."""
        return "".join(piece * count for piece, count in self.placeholder)

    @property
    def num_pixels(self) -> int:
        """Of all stored arrays."""
        return sum(width * height for width, height in (recipe.size for recipe in self.recipes))


class ImageRules(Protocol):
    """What a kind of image processor does. One frozen dataclass a kind, in a module of its own."""

    @property
    def image_token(self) -> str:
        """The token that the chat template prints for an image."""

    @property
    def wrapping(self) -> tuple[str, str] | None:
        """The tokens that the template prints before and after an image, which belong to it."""

    def plan(self, size: Size) -> ImagePlan:
        """What an upright image of this size becomes.

        Raises:
            UnfitImageError: the processor takes none of this shape.
        """

    def pieces(self) -> frozenset[str]:
        """All pieces of text that the placeholder of any plan may have."""

    def model_inputs(self) -> Mapping[str, Any]:
        """The fields of `DatasetInfo` that say what the stored arrays are."""
