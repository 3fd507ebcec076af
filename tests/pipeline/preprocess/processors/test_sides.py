"""Sizes that no picture has, at every public entry of image plans."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.processors.anyres_tiles import LlavaNextTiles, LlavaOnevisionTiles
from slurm_jobs.formats.processors.gemma_images import Gemma3Images, Gemma4Images
from slurm_jobs.formats.processors.glm_images import GlmImages
from slurm_jobs.formats.processors.image_plans import (
    FixedImages,
    IdeficsTiles,
    ImageRules,
    NativeImages,
    UnfitImageError,
    check_sides,
    smart_resize,
)
from slurm_jobs.formats.processors.internvl_tiles import InternVLTiles
from slurm_jobs.formats.processors.paddleocr_images import PaddleOcrImages
from slurm_jobs.formats.processors.pixtral_images import PixtralImages

FIXED = {"height": 24, "width": 24, "image_token": "<image>", "num_image_tokens": 4}
NATIVE = {
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 3136,
    "max_pixels": 100_000,
    "image_token": "<image>",
    "wrapping": ("<start>", "<end>"),
}
KINDS = {
    "fixed": FixedImages(shortest_edge=None, **FIXED),
    "cut": FixedImages(shortest_edge=24, **FIXED),
    "idefics": IdeficsTiles(
        longest_edge=100,
        tile_size=20,
        split=True,
        image_token="<image>",
        fake_token="<fake>",
        global_token="<global>",
        num_image_tokens=3,
    ),
    "llava_next": LlavaNextTiles(
        tile_size=20,
        grids=((20, 40), (40, 40)),
        patch_size=5,
        num_additional_tokens=0,
        drops_first_token=False,
        image_token="<image>",
    ),
    "llava_onevision": LlavaOnevisionTiles(
        tile_size=20,
        grids=((20, 40), (40, 40)),
        num_image_tokens=16,
        max_tiles=2,
        drops_first_token=False,
        background=(0, 0, 0),
        image_token="<image>",
    ),
    "internvl": InternVLTiles(
        tile_size=20,
        min_tiles=1,
        max_tiles=6,
        image_token="<image>",
        start_token="<start>",
        end_token="<end>",
        num_image_tokens=3,
    ),
    "gemma4": Gemma4Images(
        patch_size=4,
        merge_size=3,
        max_tokens=70,
        image_token="<image>",
        marks=("<start>", "<end>"),
    ),
    "gemma3": Gemma3Images(shortest_edge=None, wrapping=("<start>", "<end>"), **FIXED),
    "native": NativeImages(**NATIVE),
    "glm": GlmImages(**NATIVE),
    "paddleocr": PaddleOcrImages(**NATIVE),
    "pixtral": PixtralImages(
        longest_edge=200,
        step=28,
        patch_size=14,
        merge_size=2,
        image_token="<image>",
        row_marks=("<row>", "<end>"),
    ),
}


@pytest.mark.parametrize("size", [(5, 0), (0, 5), (0, 0), (-3, 4), (4, -3)])
@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_a_side_without_a_pixel_is_an_unfit_image(rules: ImageRules, size: tuple[int, int]) -> None:
    with pytest.raises(UnfitImageError, match=f"{size[0]} x {size[1]} pixels are no picture"):
        rules.plan(size)
    with pytest.raises(UnfitImageError, match="each side has at least 1 pixel"):
        smart_resize(size, factor=28, min_pixels=3136, max_pixels=100_000)


@pytest.mark.parametrize("size", [(1, 1), (1, 150), (150, 1)])
@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_the_smallest_pictures_have_a_plan(rules: ImageRules, size: tuple[int, int]) -> None:
    check_sides(size)
    assert rules.plan(size).num_pixels > 0


def test_every_kind_of_rules_is_tried_here() -> None:
    names, kinds = set(), [*ImageRules.__subclasses__()]
    while kinds:
        kind = kinds.pop()
        names.add(kind.__name__)  # slots make each class twice
        kinds += kind.__subclasses__()
    assert {type(rules).__name__ for rules in KINDS.values()} == names
