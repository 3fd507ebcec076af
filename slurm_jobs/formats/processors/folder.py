"""Reader of a processor folder's JSON files; refuses values that it cannot apply.

The folder has Hugging Face's layout: `image_processor` in `processor_config.json` (as
transformers 5 saves it), else `preprocessor_config.json`. The first has priority in
transformers, too. `pipeline.preprocess.chat.tokenizer` reads the tokenizer's files.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.processors.builders import BUILDERS, Described
from slurm_jobs.formats.processors.class_defaults import CLASS_DEFAULTS, NEUTRAL_KEYS
from slurm_jobs.formats.processors.image_plans import ImageRules
from slurm_jobs.formats.processors.model_types import image_processor_class

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
    described = describe_processor(folder, own_tokens)
    values, images_file = described.images, described.images_file
    rules = BUILDERS[image_processor_class(values)].build(described)
    resample = values["resample"]
    if not isinstance(resample, int) or not 0 <= resample < _NUM_FILTERS:
        wanted = "expected Pillow's number of a filter, 0 to 5"
        message = f"{images_file}: resample {resample!r}, {wanted}"
        raise StageDataError(message)
    return ProcessorInfo(
        images=rules,
        resample=int(resample),
        image_mean=_channels(values, "image_mean", images_file),
        image_std=_channels(values, "image_std", images_file),
        rescale_factor=float(values["rescale_factor"]),
    )


def describe_processor(folder: Path, own_tokens: Mapping[str, str] | None = None) -> Described:
    """Read the files of a processor folder, and refuse kinds that are not understood.

    Raises:
        StageConfigError: a file is missing, or of an unknown kind.
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
        raise StageDataError(message)
    given = {key: value for key, value in images.items() if value is not None}
    values = {**CLASS_DEFAULTS[name], **given}
    _check_pixels(name, given, images_file)
    if not values["do_normalize"]:  # of a class that leaves this to its model
        values |= {"image_mean": 0, "image_std": 1}
    described = Described(
        images=values,
        images_file=images_file,
        processor=processor,
        processor_file=processor_file,
        own_tokens=own_tokens or {},
    )
    known_layouts = BUILDERS[name].processor_classes
    file, layout = processor_file, processor.get("processor_class")
    if layout is None:
        file, layout = images_file, values.get("processor_class")
    if layout is not None and layout not in known_layouts:
        message = (
            f"{file}: processor_class {layout!r} is not understood with these images, so which "
            f"tokens stand for one is not known; understood are "
            f"{', '.join(sorted(known_layouts))}"
        )
        raise StageDataError(message)
    return described


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
            raise StageDataError(message)
    for key in _STEPS:
        if given.get(key) is False and CLASS_DEFAULTS[name][key]:
            message = (
                f"{file}: `{key}` is false, but images are always resized, and their pixels "
                f"rescaled and normalised for the model; a processor without this step is not "
                f"supported"
            )
            raise StageDataError(message)


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
        raise StageDataError(message)
    return section, own_file


def _channels(images: Mapping[str, Any], key: str, file: Path) -> tuple[float, ...]:
    """Return a number for each of the three channels; one number serves all."""
    numbers = images[key]
    values = (numbers,) * 3 if isinstance(numbers, int | float) else tuple(numbers)
    if len(values) == 3 and all(isinstance(value, int | float) for value in values):
        return tuple(float(value) for value in values)
    message = f"{file}: {key} {numbers!r}, expected three numbers"
    raise StageDataError(message)


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
        raise StageDataError(message) from error
    if not isinstance(values, dict):
        message = f"{path}: a JSON {type(values).__name__}, expected an object"
        raise StageDataError(message)
    return values
