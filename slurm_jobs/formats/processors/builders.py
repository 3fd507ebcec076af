"""Conversion of a processor folder's values to the kind of images that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, TypeVar

from slurm_jobs.base.errors import StageDataError
from slurm_jobs.formats.processors.anyres_tiles import LlavaNextTiles, LlavaOnevisionTiles
from slurm_jobs.formats.processors.gemma_images import Gemma3Images, Gemma4Images
from slurm_jobs.formats.processors.glm_images import GlmImages
from slurm_jobs.formats.processors.image_plans import (
    Colour,
    FixedImages,
    IdeficsTiles,
    ImageRules,
    NativeImages,
    Size,
)
from slurm_jobs.formats.processors.internvl_tiles import InternVLTiles
from slurm_jobs.formats.processors.paddleocr_images import PaddleOcrImages
from slurm_jobs.formats.processors.pixtral_images import PixtralImages

_GEMMA3_TOKENS = 256
"""`image_seq_length` of transformers' Gemma3Processor, if none is given."""
_GEMMA4_TOKENS = (70, 140, 280, 560, 1120)
"""`_SUPPORTED_SOFT_TOKENS` of transformers' Gemma4ImageProcessor."""
_IDEFICS_TOKENS = 169
"""`image_seq_len` of transformers' Idefics3Processor and SmolVLMProcessor, if none is given."""
_INTERNVL_TOKENS = 256
"""`image_seq_length` of transformers' InternVLProcessor, if none is given."""
_LIGHTON_PATCH, _LIGHTON_MERGE = 14, 2
"""`patch_size` and `spatial_merge_size` of transformers' LightOnOcrProcessor, if none is given."""
_PIXTRAL_PATCH = 16
"""`patch_size` of transformers' PixtralProcessor, if none is given."""
_ONEVISION_RATIO = "anyres_max_9"
"""`vision_aspect_ratio` of transformers' LlavaOnevisionProcessor, if none is given."""
_MOST_TILES = 1024
"""Limit for the grids of InternVL, which are all compared for each image. Its own models have 12
tiles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """Content of the files of a processor folder."""

    images: Mapping[str, Any]
    """Values of the image processor, with its class's defaults."""
    images_file: Path
    processor: Mapping[str, Any]
    """Values of `processor_config.json`."""
    processor_file: Path
    own_tokens: Mapping[str, str]
    """Tokens that the tokenizer names."""

    def token(self, name: str, otherwise: str) -> str:
        """Return a token by the name of its role."""
        return self.own_tokens.get(name, otherwise)

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise on a value of the image processor that cannot be used.

        Raises:
            StageConfigError: always.
        """
        message = f"{self.images_file}: {key} {self.images.get(key)!r}; {expected}"
        raise StageDataError(message)

    def counts(self, key: str, names: Iterable[str], expected: str) -> tuple[int, ...]:
        """Return the values of a mapping of the image processor, which has exactly these keys."""
        section, names = self.images.get(key), tuple(names)
        if not isinstance(section, Mapping):
            self.refuse(key, expected)
        given = {name: value for name, value in section.items() if value is not None}
        if not _has_counts(given, set(names)):
            self.refuse(key, expected)
        return tuple(given[name] for name in names)

    def count(self, key: str) -> int:
        """Return a number of the image processor that is 1 or more."""
        if not _is_count(self.images.get(key)):
            self.refuse(key, "expected a whole number, 1 or more")
        return int(self.images[key])

    def token_number(self, key: str, default: int | None = None) -> int:
        """Return a number of the processor, from which the tokens of an image are counted.

        It is 1 or more; a number with the default 0 may also be 0.

        Raises:
            StageConfigError: it is missing and has no default, or is no such number.
        """
        value = self.processor.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            message = f"{self.processor_file}: `{key}` is missing"
            raise StageDataError(message)
        least = 0 if default == 0 else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            message = (
                f"{self.processor_file}: `{key}` is {value!r}, expected a whole number, {least} or "
                "more, because it decides how many tokens an image has"
            )
            raise StageDataError(message)
        return value

    def patch_of(self, side: int) -> int:
        """Return the side of a patch of the vision tower, at most that of its pictures."""
        patch_size = self.token_number("patch_size")
        if patch_size > side:
            message = (
                f"{self.processor_file}: `patch_size` is {patch_size}, more than the {side} pixels "
                "of the side of a picture, which would have no tokens; write that of the tower"
            )
            raise StageDataError(message)
        return patch_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Builder:
    """Construction of the rules for a class of image processors."""

    build: Callable[[Described], ImageRules]
    processor_classes: frozenset[str]
    """Processor classes that put the tokens of this kind's plans in place of an image."""
    more_keys: frozenset[str] = frozenset()
    """Keys without default that are read or change nothing."""


def build_fixed(described: Described) -> FixedImages:
    """Return the single size that an image processor's config stands for.

    Raises:
        StageConfigError: the size is missing, or images would not have one size.
    """
    height, width, edge = _read_fixed_size(described.images, described.images_file)
    processor = described.processor
    if processor.get("num_image_tokens") is not None:
        given = described.token_number("num_image_tokens")
    else:
        patch_size = described.patch_of(min(height, width))
        given = (height // patch_size) * (width // patch_size)
        given += described.token_number("num_additional_image_tokens", default=0)
        given -= processor.get("vision_feature_select_strategy") == "default"
    return FixedImages(
        height=height,
        width=width,
        shortest_edge=edge,
        image_token=described.token("image_token", processor.get("image_token", "<image>")),
        num_image_tokens=given,
    )


def _read_fixed_size(images: Mapping[str, Any], file: Path) -> tuple[int, int, int | None]:
    """Return height, width, and the shorter side before the middle is cut out."""
    size = images.get("size")
    crop = images.get("crop_size") if images.get("do_center_crop") else None
    if isinstance(size, int):
        square = images.get("default_to_square", True)
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    size = {k: v for k, v in size.items() if v is not None} if isinstance(size, Mapping) else size
    if _has_counts(size, {"height", "width"}) and crop in (None, size):
        return size["height"], size["width"], None
    if _has_counts(size, {"shortest_edge"}) and _has_counts(crop, {"height", "width"}):
        edge = size["shortest_edge"]
        if max(crop["height"], crop["width"]) <= edge:
            return crop["height"], crop["width"], edge
    message = (
        f"{file}: size {size!r} with crop_size {crop!r} does not give images of one size; "
        f"supported are size {{height, width}}, and size {{shortest_edge}} with a crop_size "
        f"within it"
    )
    raise StageDataError(message)


def build_gemma3(described: Described) -> Gemma3Images:
    """Return the rules for Gemma 3's images of one size.

    Raises:
        StageConfigError: the size is missing, or images would be cut into crops.
    """
    if described.images.get("do_pan_and_scan"):
        described.refuse("do_pan_and_scan", "crops of an image are not supported; set it to false")
    height, width, _ = _read_fixed_size(described.images, described.images_file)
    return Gemma3Images(
        height=height,
        width=width,
        shortest_edge=None,
        image_token=described.token("image_token", "<image_soft_token>"),
        wrapping=(
            described.token("boi_token", "<start_of_image>"),
            described.token("eoi_token", "<end_of_image>"),
        ),
        num_image_tokens=described.token_number("image_seq_length", default=_GEMMA3_TOKENS),
    )


def build_gemma4(described: Described) -> Gemma4Images:
    """Return the rules for images of their own proportions: Gemma 4.

    Raises:
        StageConfigError: a value is invalid.
    """
    max_tokens = described.count("max_soft_tokens")
    if max_tokens not in _GEMMA4_TOKENS:
        described.refuse("max_soft_tokens", f"expected one of {_GEMMA4_TOKENS}")
    return Gemma4Images(
        patch_size=described.count("patch_size"),
        merge_size=described.count("pooling_kernel_size"),
        max_tokens=max_tokens,
        image_token=described.token("image_token", "<|image|>"),
        marks=(described.token("boi_token", "<|image>"), described.token("eoi_token", "<image|>")),
    )


def build_native(described: Described) -> NativeImages:
    """Return the rules for images of their own proportions: the Qwen2-VL family.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    marks = ("vision_start_token", "<|vision_start|>"), ("vision_end_token", "<|vision_end|>")
    return _build_native(described, NativeImages, "<|image_pad|>", marks)


def build_paddleocr(described: Described) -> PaddleOcrImages:
    """Return the rules for images of their own proportions: PaddleOCR-VL.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    marks = ("image_start_token", "<|IMAGE_START|>"), ("image_end_token", "<|IMAGE_END|>")
    return _build_native(described, PaddleOcrImages, "<|IMAGE_PLACEHOLDER|>", marks)


def build_pixtral(described: Described) -> PixtralImages:
    """Return the rules for images of their own size: Mistral 3 and LightOnOCR.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    expected = "expected longest_edge (in pixels), and nothing else"
    (longest_edge,) = described.counts("size", ("longest_edge",), expected)
    names = (values.get("processor_class") for values in (described.processor, described.images))
    if next(filter(None, names), None) == "PixtralProcessor":
        return _build_mistral3(described, longest_edge)
    if isinstance(described.images["patch_size"], Mapping):
        square = "expected a number, or height and width, which are equal"
        step, width = described.counts("patch_size", ("height", "width"), square)
        if step != width:
            described.refuse("patch_size", square)
    else:
        step = described.count("patch_size")
    return PixtralImages(
        longest_edge=longest_edge,
        step=step,
        patch_size=described.token_number("patch_size", default=_LIGHTON_PATCH),
        merge_size=described.token_number("spatial_merge_size", default=_LIGHTON_MERGE),
        image_token=described.token("image_token", "<|image_pad|>"),
        row_marks=None,
    )


def _build_mistral3(described: Described, longest_edge: int) -> PixtralImages:
    patch_size = described.token_number("patch_size", default=_PIXTRAL_PATCH)
    merge_size = described.token_number("spatial_merge_size", default=1)
    tokens = described.processor
    return PixtralImages(
        longest_edge=longest_edge,
        step=patch_size * merge_size,
        patch_size=patch_size,
        merge_size=merge_size,
        image_token=tokens.get("image_token", "[IMG]"),
        row_marks=(
            tokens.get("image_break_token", "[IMG_BREAK]"),
            tokens.get("image_end_token", "[IMG_END]"),
        ),
    )


_Native = TypeVar("_Native", bound=NativeImages)


def _build_native(
    described: Described,
    kind: type[_Native],
    image_token: str,
    marks: tuple[tuple[str, str], tuple[str, str]],
) -> _Native:
    """Return rules of this class; `marks` are roles of tokens, each with the usual token."""
    expected = "expected shortest_edge and longest_edge (in pixels of area), and nothing else"
    least, most = described.counts("size", ("shortest_edge", "longest_edge"), expected)
    least = described.count("min_pixels") if "min_pixels" in described.images else least
    most = described.count("max_pixels") if "max_pixels" in described.images else most
    if most < least:
        described.refuse("size", f"the least area is {least} pixels, the greatest {most}")
    return kind(
        patch_size=described.count("patch_size"),
        merge_size=described.count("merge_size"),
        temporal_patch_size=described.count("temporal_patch_size"),
        min_pixels=least,
        max_pixels=most,
        image_token=described.token("image_token", image_token),
        wrapping=(described.token(*marks[0]), described.token(*marks[1])),
    )


def build_glm(described: Described) -> GlmImages:
    """Return the rules for images of their own proportions: GLM-4.1V, GLM-4.6V and GLM-OCR.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    times = described.count("temporal_patch_size")
    expected = "expected shortest_edge and longest_edge (in pixels of area, each repetition in "
    expected += f"time counted, so multiples of temporal_patch_size, which is {times})"
    areas = described.counts("size", ("shortest_edge", "longest_edge"), expected)
    if areas[1] < areas[0] or any(area % times for area in areas):
        described.refuse("size", expected)
    return GlmImages(
        patch_size=described.count("patch_size"),
        merge_size=described.count("merge_size"),
        temporal_patch_size=times,
        min_pixels=areas[0] // times,
        max_pixels=areas[1] // times,
        image_token=described.token("image_token", "<|image|>"),
        wrapping=("<|begin_of_image|>", "<|end_of_image|>"),
    )


def build_idefics(described: Described) -> IdeficsTiles:
    """Return the rules for tiles and the whole image: Idefics3 and SmolVLM.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    expected = "expected longest_edge (in pixels), and nothing else"
    (longest_edge,) = described.counts("size", ("longest_edge",), expected)
    (tile_size,) = described.counts("max_image_size", ("longest_edge",), expected)
    return IdeficsTiles(
        longest_edge=longest_edge,
        tile_size=tile_size,
        split=bool(described.images["do_image_splitting"]),
        image_token=described.token("image_token", "<image>"),
        fake_token=described.token("fake_image_token", "<fake_token_around_image>"),
        global_token=described.token("global_image_token", "<global-img>"),
        num_image_tokens=described.token_number("image_seq_len", default=_IDEFICS_TOKENS),
    )


def _read_square(described: Described) -> int:
    """Return the side of a tile; both sides are given."""
    expected = "expected height and width (in pixels), and nothing else"
    height, width = described.counts("size", ("height", "width"), expected)
    if height != width:
        described.refuse("size", "expected square tiles")
    return height


def build_internvl(described: Described) -> InternVLTiles:
    """Return the rules for the tiles of the nearest grid and the whole image: InternVL.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    tile_size = _read_square(described)
    min_tiles, max_tiles = described.count("min_patches"), described.count("max_patches")
    if max_tiles > _MOST_TILES:
        described.refuse("max_patches", f"expected at most {_MOST_TILES} tiles of an image")
    if min_tiles > max_tiles:
        described.refuse("min_patches", f"expected at most `max_patches`, which is {max_tiles}")
    return InternVLTiles(
        tile_size=tile_size,
        min_tiles=min_tiles,
        max_tiles=max_tiles,
        image_token=described.token("context_image_token", "<IMG_CONTEXT>"),
        start_token=described.token("start_image_token", "<img>"),
        end_token=described.token("end_image_token", "</img>"),
        num_image_tokens=described.token_number("image_seq_length", default=_INTERNVL_TOKENS),
    )


def build_llava_next(described: Described) -> LlavaNextTiles:
    """Return the rules for the whole image and tiles of the best grid: LLaVA-NeXT.

    Raises:
        StageConfigError: a value is missing, or tiles would be resized once more.
    """
    height, width, edge = _read_fixed_size(described.images, described.images_file)
    if height != width or edge not in (None, height):
        described.refuse("size", f"expected squares of crop_size, which is {width} x {height}")
    processor = described.processor
    return LlavaNextTiles(
        tile_size=height,
        grids=_read_grids(described, height),
        patch_size=described.patch_of(height),
        num_additional_tokens=described.token_number("num_additional_image_tokens", default=0),
        drops_first_token=processor.get("vision_feature_select_strategy") == "default",
        image_token=described.token("image_token", processor.get("image_token", "<image>")),
    )


def build_llava_onevision(described: Described) -> LlavaOnevisionTiles:
    """Return the rules for one image of a row, and for several: LLaVA-OneVision.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    tile_size = _read_square(described)
    processor = described.processor
    aspect_ratio = processor.get("vision_aspect_ratio", _ONEVISION_RATIO)
    limit = re.fullmatch(r"anyres_max_([1-9]\d{0,3})", str(aspect_ratio))
    if limit is None:
        message = (
            f"{described.processor_file}: `vision_aspect_ratio` is {aspect_ratio!r}, expected "
            f"anyres_max_NUMBER, such as {_ONEVISION_RATIO}"
        )
        raise StageDataError(message)
    return LlavaOnevisionTiles(
        tile_size=tile_size,
        grids=_read_grids(described, tile_size),
        num_image_tokens=described.token_number("num_image_tokens"),
        max_tiles=int(limit[1]),
        drops_first_token=processor.get("vision_feature_select_strategy") == "default",
        background=_mean_colour(described),
        image_token=described.token("image_token", processor.get("image_token", "<image>")),
    )


def _read_grids(described: Described, tile_size: int) -> tuple[Size, ...]:
    """Return width and height of each grid, which are multiples of the side of a tile."""
    grids = described.images["image_grid_pinpoints"]
    if not grids or any(side % tile_size or side <= 0 for grid in grids for side in grid):
        described.refuse("image_grid_pinpoints", f"expected multiples of the size, {tile_size}")
    return tuple((grid_width, grid_height) for grid_height, grid_width in grids)


def _mean_colour(described: Described) -> Colour:
    """Return the mean of all images as a colour, rounded down as `pad_to_square` is called."""
    mean = described.images["image_mean"]
    expected = "expected three numbers from 0 to 1, which are also the colour of padding"
    if not isinstance(mean, list | tuple) or len(mean) != 3:
        described.refuse("image_mean", expected)
    for value in mean:
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            described.refuse("image_mean", expected)
    red, green, blue = mean
    return int(red * 255), int(green * 255), int(blue * 255)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _has_counts(values: object, keys: set[str]) -> TypeGuard[Mapping[str, int]]:
    """Check for a mapping with exactly these keys, each a whole number, 1 or more."""
    if not isinstance(values, Mapping) or values.keys() != keys:
        return False
    return all(_is_count(value) for value in values.values())


_FIXED = Builder(
    build=build_fixed,
    # The last two place no tokens: such a folder counts them by `num_image_tokens`.
    processor_classes=frozenset({"LlavaProcessor", "CLIPProcessor", "SiglipProcessor"}),
    more_keys=frozenset({"do_center_crop", "crop_size"}),
)
_IDEFICS = Builder(
    build=build_idefics,
    processor_classes=frozenset({"Idefics3Processor", "SmolVLMProcessor"}),
    more_keys=frozenset({"do_pad"}),  # pads batches of tiles, which are all of one size
)

_GLM = Builder(
    build=build_glm,
    processor_classes=frozenset({"Glm4vProcessor", "Glm46VProcessor"}),
)

BUILDERS: Mapping[str, Builder] = {
    "CLIPImageProcessor": _FIXED,
    "Gemma3ImageProcessor": Builder(
        build=build_gemma3,
        processor_classes=frozenset({"Gemma3Processor"}),
        more_keys=frozenset(
            {
                *("do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops"),
                "pan_and_scan_min_ratio_to_activate",
            }
        ),
    ),
    "Glm46VImageProcessor": _GLM,
    "Glm4vImageProcessor": _GLM,
    "GotOcr2ImageProcessor": Builder(
        build=build_internvl,
        processor_classes=frozenset({"InternVLProcessor"}),
    ),
    "Gemma4ImageProcessor": Builder(
        build=build_gemma4,
        processor_classes=frozenset({"Gemma4Processor"}),
        more_keys=frozenset({"size"}),  # its processor does not read it
    ),
    "Idefics3ImageProcessor": _IDEFICS,
    "LlavaImageProcessor": _FIXED,
    "LlavaNextImageProcessor": Builder(
        build=build_llava_next,
        processor_classes=frozenset({"LlavaNextProcessor"}),
        more_keys=frozenset({"do_pad"}),  # pads with empty tiles
    ),
    "LlavaOnevisionImageProcessor": Builder(
        build=build_llava_onevision,
        processor_classes=frozenset({"LlavaOnevisionProcessor"}),
        more_keys=frozenset({"do_pad"}),  # pads with empty tiles
    ),
    "PaddleOCRVLImageProcessor": Builder(
        build=build_paddleocr,
        processor_classes=frozenset({"PaddleOCRVLProcessor"}),
        more_keys=frozenset({"min_pixels", "max_pixels"}),
    ),
    "PixtralImageProcessor": Builder(
        build=build_pixtral,
        processor_classes=frozenset({"LightOnOcrProcessor", "PixtralProcessor"}),
        more_keys=frozenset({"do_pad"}),  # pads a batch to its largest image
    ),
    "Qwen2VLImageProcessor": Builder(
        build=build_native,
        processor_classes=frozenset(
            {"Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"}
        ),
        more_keys=frozenset({"min_pixels", "max_pixels"}),
    ),
    "SiglipImageProcessor": _FIXED,
    "SmolVLMImageProcessor": _IDEFICS,
    "ViTImageProcessor": _FIXED,
}
"""Builders by the class's name without `Fast` or `Pil`."""
