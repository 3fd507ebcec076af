"""What a processor folder makes of images: which pixels are stored, which tokens stand for them.

`read_processor` reads the folder's JSON files. Each kind of image processor has a module that
computes, from the size of an image alone, what becomes of it (an `ImagePlan`). Nothing here needs
torch or transformers, so `init` and `check` count tokens as the job does.
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
