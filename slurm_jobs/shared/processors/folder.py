"""Processor folder: its JSON files, defaults of classes, and limits on pixels."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeGuard

from slurm_jobs.shared.configs.stages import ImagePixels
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.processors.image_plans import (
    FixedImages,
    IdeficsTiles,
    ImageRules,
    LlavaNextTiles,
    NativeImages,
)
from slurm_jobs.shared.processors.model_types import MADE_IMAGES, image_processor_class
from slurm_jobs.shared.regular_files import MOST_MEASURED_BYTES, read_bytes

# Defaults of image processor classes for values that a folder lacks.
#
# The folders on hubs contain few values: Qwen2-VL's has neither a filter nor a size. These are the
# class attributes of transformers 5; a test compares them with those installed.


_BICUBIC, _BILINEAR, _LANCZOS = 3, 2, 1
"""Pillow's numbers of the filters."""

_STEP_DEFAULTS = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
}
_CENTRED = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
_OPENAI = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_CLIP = {
    **_STEP_DEFAULTS,
    **_OPENAI,
    "resample": _BICUBIC,
    "size": {"shortest_edge": 224},
    "default_to_square": False,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
}
_IDEFICS_DEFAULTS = {
    **_STEP_DEFAULTS,
    **_CENTRED,
    "resample": _LANCZOS,
    "size": {"longest_edge": 4 * 364},
    "max_image_size": {"longest_edge": 364},
    "do_image_splitting": True,
}
_SQUARE = {**_STEP_DEFAULTS, **_CENTRED, "size": {"height": 224, "width": 224}}

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "CLIPImageProcessor": _CLIP,
    "Idefics3ImageProcessor": _IDEFICS_DEFAULTS,
    "LlavaImageProcessor": _CLIP,
    "LlavaNextImageProcessor": {
        **_CLIP,
        "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
    },
    "Qwen2VLImageProcessor": {
        **_STEP_DEFAULTS,
        **_OPENAI,
        "resample": _BICUBIC,
        "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    "SiglipImageProcessor": {**_SQUARE, "resample": _BICUBIC, "default_to_square": False},
    "SmolVLMImageProcessor": _IDEFICS_DEFAULTS,
    "ViTImageProcessor": {**_SQUARE, "resample": _BILINEAR},
}
"""Defaults by the class's name without `Fast` or `Pil`, which name back ends."""

NEUTRAL_KEYS = frozenset({
    *("image_processor_type", "feature_extractor_type", "processor_class", "auto_map"),
    *("_valid_processor_keys", "data_format", "input_data_format", "return_tensors", "device"),
    *("disable_grouping", "image_seq_length", "return_row_col_info", "default_to_square"),
    "do_convert_rgb",  # every image is RGB here
    "aspect_ratio_setting",  # of LLaVA-NeXT's first files; no processor reads it
    "video_sampling",  # of SmolVLM2
})  # fmt: skip
"""Keys that change no pixel of an image, or that the code for sizes reads."""


# Limits of a user on the pixels of resized images, instead of a processor's.


_SIZE_KEYS: Mapping[str, str] = {
    "CLIPImageProcessor": "size and crop_size, one size for all images",
    "Idefics3ImageProcessor": "size.longest_edge, and max_image_size.longest_edge for its tiles",
    "LlavaImageProcessor": "size and crop_size, one size for all images",
    "LlavaNextImageProcessor": "image_grid_pinpoints, a list of grids of tiles",
    "SiglipImageProcessor": "size, one size for all images",
    "SmolVLMImageProcessor": "size.longest_edge, and max_image_size.longest_edge for its tiles",
    "ViTImageProcessor": "size, one size for all images",
}
"""Keys by which a class of image processors limits images."""


class PixelLimitsError(ValueError):
    """Limits that do not fit this processor."""


def with_image_pixels(images: Mapping[str, Any], pixels: ImagePixels) -> dict[str, Any]:
    """Return the values of an image processor with these limits.

    transformers 5 reads `size`. Its older versions and other programs read `min_pixels` and
    `max_pixels`, which have priority over `size`.

    Raises:
        PixelLimitsError: the processor has no such limits, or they leave no size for an image.
    """
    name = image_processor_class(images)
    if MADE_IMAGES.get(name) != "native":
        limit = f"its limit is {_SIZE_KEYS[name]}" if name in _SIZE_KEYS else "it has none of these"
        message = (
            f"image_pixels limits images that keep their proportions (Qwen2-VL, Qwen2.5-VL, "
            f"Qwen3-VL), and this is a {name or 'processor of an unnamed class'}: {limit}. Leave "
            "image_pixels out; to change that limit, edit it in a copy of the folder and set "
            "`processor` to the copy"
        )
        raise PixelLimitsError(message)
    values = {**CLASS_DEFAULTS[name], **{k: v for k, v in images.items() if v is not None}}
    size = values["size"] if isinstance(values["size"], Mapping) else {}
    least = pixels.min or values.get("min_pixels") or size.get("shortest_edge")
    most = pixels.max or values.get("max_pixels") or size.get("longest_edge")
    side = values["patch_size"] * values["merge_size"]
    if pixels.max is not None and pixels.max < side**2:
        message = (
            f"image_pixels.max is {pixels.max}, less than one token of this processor "
            f"({side} x {side} = {side**2} pixels)"
        )
        raise PixelLimitsError(message)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message = (
            f"image_pixels.max is {most}, and the processor enlarges images to {least} pixels; "
            "set image_pixels.min, too"
            if pixels.min is None
            else f"image_pixels.min is {least}, and the processor reduces images to {most} "
            "pixels; set image_pixels.max, too"
        )
        raise PixelLimitsError(message)
    limits = {"min_pixels": least, "max_pixels": most}
    return {**images, **limits, "size": {"shortest_edge": least, "longest_edge": most}}


# Conversion of a processor folder's values to the kind of images that they describe.


_IDEFICS_TOKENS = 169
"""`image_seq_len` of transformers' Idefics3Processor and SmolVLMProcessor, if none is given."""


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
        raise StageConfigError(message)

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
            raise StageConfigError(message)
        least = 0 if default == 0 else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            message = (
                f"{self.processor_file}: `{key}` is {value!r}, expected a whole number, {least} or "
                "more, because it decides how many tokens an image has"
            )
            raise StageConfigError(message)
        return value

    def patch_of(self, side: int) -> int:
        """Return the side of a patch of the vision tower, at most that of its pictures."""
        patch_size = self.token_number("patch_size")
        if patch_size > side:
            message = (
                f"{self.processor_file}: `patch_size` is {patch_size}, more than the {side} pixels "
                "of the side of a picture, which would have no tokens; write that of the tower"
            )
            raise StageConfigError(message)
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
    raise StageConfigError(message)


def build_native(described: Described) -> NativeImages:
    """Return the rules for images of their own proportions: the Qwen2-VL family.

    Raises:
        StageConfigError: a value is missing or invalid.
    """
    expected = "expected shortest_edge and longest_edge (in pixels of area), and nothing else"
    least, most = described.counts("size", ("shortest_edge", "longest_edge"), expected)
    least = described.count("min_pixels") if "min_pixels" in described.images else least
    most = described.count("max_pixels") if "max_pixels" in described.images else most
    if most < least:
        described.refuse("size", f"the least area is {least} pixels, the greatest {most}")
    return NativeImages(
        patch_size=described.count("patch_size"),
        merge_size=described.count("merge_size"),
        temporal_patch_size=described.count("temporal_patch_size"),
        min_pixels=least,
        max_pixels=most,
        image_token=described.token("image_token", "<|image_pad|>"),
        wrapping=(
            described.token("vision_start_token", "<|vision_start|>"),
            described.token("vision_end_token", "<|vision_end|>"),
        ),
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


def build_llava_next(described: Described) -> LlavaNextTiles:
    """Return the rules for the whole image and tiles of the best grid: LLaVA-NeXT.

    Raises:
        StageConfigError: a value is missing, or tiles would be resized once more.
    """
    height, width, edge = _read_fixed_size(described.images, described.images_file)
    if height != width or edge not in (None, height):
        described.refuse("size", f"expected squares of crop_size, which is {width} x {height}")
    grids = described.images["image_grid_pinpoints"]
    if not grids or any(side % height or side <= 0 for grid in grids for side in grid):
        described.refuse("image_grid_pinpoints", f"expected multiples of the size, {height}")
    processor = described.processor
    return LlavaNextTiles(
        tile_size=height,
        grids=tuple((grid_width, grid_height) for grid_height, grid_width in grids),
        patch_size=described.patch_of(height),
        num_additional_tokens=described.token_number("num_additional_image_tokens", default=0),
        drops_first_token=processor.get("vision_feature_select_strategy") == "default",
        image_token=described.token("image_token", processor.get("image_token", "<image>")),
    )


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

BUILDERS: Mapping[str, Builder] = {
    "CLIPImageProcessor": _FIXED,
    "Idefics3ImageProcessor": _IDEFICS,
    "LlavaImageProcessor": _FIXED,
    "LlavaNextImageProcessor": Builder(
        build=build_llava_next,
        processor_classes=frozenset({"LlavaNextProcessor"}),
        more_keys=frozenset({"do_pad"}),  # pads with empty tiles
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


# Small files of a processor folder, and changes since `consolidate` copied them.


_SUFFIXES = frozenset({".json", ".jinja", ".txt", ".model"})


def processor_files(folder: Path) -> list[Path]:
    """Return the files of a processor folder by name, without weights that may be next to them."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix in _SUFFIXES
        and not path.name.endswith(".index.json")
        and not path.name.startswith(".")
    )


def processor_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a processor folder, by name; empty without a folder.

    SHA-256 because the login node must compute it too, and its Python may lack xxhash.
    """
    if not folder.is_dir():
        return {}
    return {
        path.name: hashlib.sha256(read_bytes(path, most_bytes=MOST_MEASURED_BYTES)).hexdigest()
        for path in processor_files(folder)
    }


def changed_files(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the differences between two sets of checksums: `chat_template.jinja was changed`."""
    verbs = {
        **dict.fromkeys(expected.keys() - found.keys(), "is missing"),
        **dict.fromkeys(found.keys() - expected.keys(), "was added"),
        **{
            name: "was changed"
            for name in expected.keys() & found.keys()
            if expected[name] != found[name]
        },
    }
    return [f"{name} {verb}" for name, verb in sorted(verbs.items())]


def changed_processor(folder: PurePath, changes: list[str]) -> str:
    """Return the message about a data set whose processor folder has changed."""
    return (
        f"{folder}: {', '.join(changes)} since `consolidate`: the samples were made with other "
        "files, so the model would be evaluated and exported with a processor that it was not "
        "trained with. Put the files back, or run `consolidate` again (to use other files, run "
        "`preprocess` again with them)"
    )


# Reader of a processor folder's JSON files; refuses values that it cannot apply.
#
# The folder has Hugging Face's layout: `image_processor` in `processor_config.json` (as
# transformers 5 saves it), else `preprocessor_config.json`. The first has priority in
# transformers, too. `pipeline.preprocess.tokenizer` reads the tokenizer's files.


_STEPS = ("do_resize", "do_rescale", "do_normalize")
"""Keys by which an image processor omits a step."""
_NUM_FILTERS = 6
"""Pillow numbers its filters 0 to 5."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorInfo:
    """Values from the processor folder's JSON files."""

    images: ImageRules
    resample: int
    """Pillow's number of the filter (3 is bicubic)."""
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float
    """Factor for uint8 pixels before mean and standard deviation are applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Normalisation:
    """Normalisation of bytes: (byte * rescale_factor - mean) / std."""

    file: Path
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float


def read_processor(folder: Path, own_tokens: Mapping[str, str] | None = None) -> ProcessorInfo:
    """Read a processor folder.

    `own_tokens` are those that its tokenizer names by attributes (`image_token`). They have
    priority over the folder's files, as in transformers.

    Raises:
        StageConfigError: a file or value is missing, or of an unknown kind.
    """
    check_folder(folder)
    processor_file = folder / "processor_config.json"
    processor = read_folder_json(processor_file)
    images, images_file = find_images(processor, processor_file)
    name = image_processor_class(images)
    if name not in CLASS_DEFAULTS:
        given_name = images.get("image_processor_type") or name or None
        message = (
            f"{images_file}: image_processor_type {given_name!r} is not understood, so what it "
            f"makes of an image is not known; understood are {', '.join(sorted(CLASS_DEFAULTS))}"
        )
        raise StageConfigError(message)
    given = {key: value for key, value in images.items() if value is not None}
    values = {**CLASS_DEFAULTS[name], **given}
    _check_pixels(name, given, images_file)
    described = Described(
        images=values,
        images_file=images_file,
        processor=processor,
        processor_file=processor_file,
        own_tokens=own_tokens or {},
    )
    builder = BUILDERS[name]
    file, layout = processor_file, processor.get("processor_class")
    if layout is None:
        file, layout = images_file, values.get("processor_class")
    if layout is not None and layout not in builder.processor_classes:
        message = (
            f"{file}: processor_class {layout!r} is not understood with these images, so which "
            f"tokens stand for one is not known; understood are "
            f"{', '.join(sorted(builder.processor_classes))}"
        )
        raise StageConfigError(message)
    rules = builder.build(described)
    resample = values["resample"]
    if not isinstance(resample, int) or not 0 <= resample < _NUM_FILTERS:
        wanted = "expected Pillow's number of a filter, 0 to 5"
        message = f"{images_file}: resample {resample!r}, {wanted}"
        raise StageConfigError(message)
    return ProcessorInfo(
        images=rules,
        resample=int(resample),
        image_mean=_channels(values, "image_mean", images_file),
        image_std=_channels(values, "image_std", images_file),
        rescale_factor=float(values["rescale_factor"]),
    )


def _check_pixels(name: str, given: Mapping[str, Any], file: Path) -> None:
    """Raise on an unknown key, which may change pixels, or without a step that is always done."""
    known = {*CLASS_DEFAULTS[name], *NEUTRAL_KEYS, *BUILDERS[name].more_keys}
    for key, value in given.items():
        if key not in known and value:  # a step that is switched off changes nothing
            near = difflib.get_close_matches(key, known, n=1)
            message = (
                f"{file}: `{key}: {value!r}` is not known of {name}"
                f"{f' (`{near[0]}` is)' if near else ''}, and may change pixels; take it out if it "
                f"does not, else this processor is not supported"
            )
            raise StageConfigError(message)
    for key in _STEPS:
        if given.get(key) is False:
            message = (
                f"{file}: `{key}` is false, but images are always resized, and their pixels "
                f"rescaled and normalised for the model; a processor without this step is not "
                f"supported"
            )
            raise StageConfigError(message)


def read_normalisation(folder: Path) -> Normalisation | None:
    """Return the normalisation of any image processor, also of an unknown kind.

    None if there is no processor, or if it has no mean and deviation.

    Raises:
        StageConfigError: a file is not JSON, or a mean or deviation is not three numbers.
    """
    processor_file = folder / "processor_config.json"
    processor = read_folder_json(processor_file)
    config_file = folder / "preprocessor_config.json"
    if not processor.get("image_processor") and not read_folder_json(config_file):
        return None
    images, file = find_images(processor, processor_file)
    given = {key: value for key, value in images.items() if value is not None}
    values = {**CLASS_DEFAULTS.get(image_processor_class(images), {}), **given}
    if values.get("do_normalize") is False:
        values |= {"image_mean": 0, "image_std": 1}
    if not {"image_mean", "image_std"} <= values.keys():
        return None
    rescales = values.get("do_rescale") is not False
    return Normalisation(
        file=file,
        image_mean=_channels(values, "image_mean", file),
        image_std=_channels(values, "image_std", file),
        rescale_factor=float(values.get("rescale_factor", 1 / 255)) if rescales else 1.0,
    )


def find_images(processor: Mapping[str, Any], file: Path) -> tuple[Mapping[str, Any], Path]:
    """Return the image processor's values, and their file.

    `processor` is the content of `processor_config.json`, empty if `file` does not exist.

    Raises:
        StageConfigError: there are none.
    """
    section = processor.get("image_processor")
    if isinstance(section, dict) and section:
        return section, file
    own_file = file.with_name("preprocessor_config.json")
    section = read_folder_json(own_file)
    if not section:
        message = f"{own_file}: missing; it gives the image size, mean and deviation"
        raise StageConfigError(message)
    return section, own_file


def _channels(images: Mapping[str, Any], key: str, file: Path) -> tuple[float, ...]:
    """Return a number for each of the three channels; one number serves all."""
    numbers = images[key]
    values = (numbers,) * 3 if isinstance(numbers, int | float) else tuple(numbers)
    if len(values) == 3 and all(isinstance(value, int | float) for value in values):
        return tuple(float(value) for value in values)
    message = f"{file}: {key} {numbers!r}, expected three numbers"
    raise StageConfigError(message)


def check_folder(folder: Path) -> None:
    """Check that the folder exists.

    Raises:
        StageConfigError: it does not.
    """
    if not folder.is_dir():
        message = (
            f"{folder}: no such processor folder; download the model's processor there first "
            f"(compute nodes do not ask a hub)"
        )
        raise StageConfigError(message)


def read_folder_json(path: Path) -> dict[str, Any]:
    """Return the mapping in `path`; empty if there is no such file.

    Raises:
        StageConfigError: the file has other content.
    """
    try:
        values = json.loads(read_bytes(path))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"{path}: no valid JSON ({error})"
        raise StageConfigError(message) from error
    if not isinstance(values, dict):
        message = f"{path}: a JSON {type(values).__name__}, expected an object"
        raise StageConfigError(message)
    return values
