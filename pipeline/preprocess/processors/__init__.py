"""What a processor folder makes of images: which pixels are stored, which tokens stand for them.

`read_processor` understands the folder's JSON files; one module a kind says by pure arithmetic
what becomes of an image of a given size, as an `ImagePlan`. Carrying a plan out is left to
`row_images`, the tokenizer's side to `image_tokens`.
"""

from pipeline.preprocess.processors.folder import hash_folder, processor_files
from pipeline.preprocess.processors.plan import ImagePlan, ImageRules, Recipe, UnfitImageError
from pipeline.preprocess.processors.reading import (
    Normalisation,
    ProcessorInfo,
    read_normalisation,
    read_processor,
)

__all__ = [
    "ImagePlan",
    "ImageRules",
    "Normalisation",
    "ProcessorInfo",
    "Recipe",
    "UnfitImageError",
    "hash_folder",
    "processor_files",
    "read_normalisation",
    "read_processor",
]
