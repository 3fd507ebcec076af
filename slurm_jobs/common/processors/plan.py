"""Plan for one image as values: the arrays to store, and its placeholder in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Size = tuple[int, int]
"""Width and height in pixels, as in Pillow."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; the last two are exclusive."""


class UnfitImageError(ValueError):
    """Image whose shape the processor does not accept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Steps from the upright image to one stored array."""

    resizes: tuple[Size, ...]
    """Sizes of successive resize steps, with the processor's filter."""
    box: Box | None = None
    """Region to cut out after that, black beyond the edge; None for the whole image."""

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
    """Replacement for the image token that the chat template prints: pieces of text, each with its
    number of repetitions."""

    @property
    def text(self) -> str:
        """Return the placeholder as the processor of Hugging Face would write it."""
        return "".join(piece * count for piece, count in self.placeholder)

    @property
    def num_pixels(self) -> int:
        """Return the number of pixels of all stored arrays."""
        return sum(width * height for width, height in (recipe.size for recipe in self.recipes))


class ImageRules(Protocol):
    """Rules of a kind of image processor. Each kind is a frozen dataclass in its own module."""

    @property
    def image_token(self) -> str:
        """Return the token that the chat template prints for an image."""

    @property
    def wrapping(self) -> tuple[str, str] | None:
        """Return tokens that the template prints before and after an image, as part of it."""

    def plan(self, size: Size) -> ImagePlan:
        """Return the plan for an upright image of this size.

        Raises:
            UnfitImageError: the processor accepts no image of this shape.
        """

    def pieces(self) -> frozenset[str]:
        """Return all pieces of text that the placeholder of any plan may have."""

    def model_inputs(self) -> Mapping[str, Any]:
        """Return the fields of `DatasetInfo` that describe the stored arrays."""
