"""Inputs of each family of models: the layout of stored images, and token positions.

The data set has the pixels that a model's processor would produce, as bytes, with images
concatenated. Families differ in the shape of the input, its further arguments, and the
numbering of tokens. Each layout has one module, independent of a model's weights.
"""

from pipeline.models.layouts.anyres import AnyresTiles
from pipeline.models.layouts.model import ImageLayout, StoredImages
from pipeline.models.layouts.native import NativePatches
from pipeline.models.layouts.one_row import TilesInOneRow
from pipeline.models.layouts.stacked import StackedImages

__all__ = [
    "AnyresTiles",
    "ImageLayout",
    "NativePatches",
    "StackedImages",
    "StoredImages",
    "TilesInOneRow",
]
