"""Rules of a processor folder for images: stored pixels, and tokens in the text.

`read_processor` reads the folder's JSON files. Each kind of image processor has a module that
computes the result (an `ImagePlan`) from the size of an image alone. Nothing here needs torch or
transformers, so `init` and `check` count tokens as the job does.
"""

from slurm_jobs.common.processors.plan import ImagePlan, ImageRules, Recipe, UnfitImageError
from slurm_jobs.common.processors.reading import (
    Normalisation,
    ProcessorInfo,
    check_folder,
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
    "check_folder",
    "read_normalisation",
    "read_processor",
]
