"""How stored images, and the places of tokens, are given to each family of models.

The data set has the pixels that a model's processor would make, as bytes one image after the
other. What differs between families is how these are laid out, what is said beside them, and how
tokens are numbered. One module a layout; none knows a model's weights.
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
