"""What a processor folder says of images and image tokens.

The folder is laid out as Hugging Face writes it: `preprocessor_config.json`
(or `image_processor` in `processor_config.json`, as transformers 5 saves it),
`processor_config.json`, `tokenizer.json` and `tokenizer_config.json`. Only
processors of one fixed image size are understood: SigLIP's and CLIP's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.common.errors import StageConfigError

_BICUBIC = 3
_STEPS = ("do_resize", "do_rescale", "do_normalize")
"""Keys by which an image processor leaves out a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageGeometry:
    """The one size that every image gets."""

    height: int
    width: int
    resample: int
    """Pillow's number of the filter (3 is bicubic)."""
    shortest_edge: int | None
    """Resize the shorter side to this and cut out the middle; None resizes both sides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorInfo:
    """What is read from the processor folder's JSON files."""

    geometry: ImageGeometry
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float
    """Multiplies uint8 pixels before mean and standard deviation are applied."""
    image_token: str
    num_image_tokens: int
    """Tokens that stand for one image."""


def read_processor(folder: Path) -> ProcessorInfo:
    """Read a processor folder.

    Raises:
        StageConfigError: a file or value is missing, or of a kind not understood.
    """
    if not folder.is_dir():
        message = (
            f"{folder}: no such processor folder; download the model's processor there first "
            f"(compute nodes do not ask a hub)"
        )
        raise StageConfigError(message)
    processor = _read_json(folder / "processor_config.json")
    images_file = folder / "preprocessor_config.json"
    images = _read_json(images_file)
    if not images and processor.get("image_processor"):
        images_file, images = folder / "processor_config.json", processor["image_processor"]
    if not images:
        message = f"{images_file}: missing; it gives the image size, mean and deviation"
        raise StageConfigError(message)
    _check_steps(images, images_file)
    geometry = read_geometry(images, images_file)
    return ProcessorInfo(
        geometry=geometry,
        image_mean=tuple(_require(images, "image_mean", images_file)),
        image_std=tuple(_require(images, "image_std", images_file)),
        rescale_factor=float(images.get("rescale_factor", 1 / 255)),
        image_token=processor.get("image_token", "<image>"),
        num_image_tokens=count_image_tokens(processor, geometry, folder / "processor_config.json"),
    )


def _check_steps(images: Mapping[str, Any], file: Path) -> None:
    """Refuse a processor that leaves out a step which is always made here."""
    for key in _STEPS:
        if images.get(key) is False:
            message = (
                f"{file}: `{key}` is false, but images are always resized to one size, and their "
                f"pixels rescaled and normalised for the model; a processor without this step is "
                f"not supported"
            )
            raise StageConfigError(message)


def read_geometry(images: Mapping[str, Any], file: Path) -> ImageGeometry:
    """The image size that an image processor's config stands for.

    Raises:
        StageConfigError: the size is missing, or images of one size do not follow from it.
    """
    size = images.get("size")
    crop = images.get("crop_size") if images.get("do_center_crop") else None
    size = {"height": size, "width": size} if isinstance(size, int) else size
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    resample = int(images.get("resample", _BICUBIC))
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys() and crop in (None, size):
        return ImageGeometry(
            height=size["height"], width=size["width"], resample=resample, shortest_edge=None
        )
    if isinstance(size, Mapping) and "shortest_edge" in size and isinstance(crop, Mapping):
        edge = size["shortest_edge"]
        if max(crop["height"], crop["width"]) <= edge:
            return ImageGeometry(
                height=crop["height"], width=crop["width"], resample=resample, shortest_edge=edge
            )
    message = (
        f"{file}: size {size!r} with crop_size {crop!r} does not give images of one size; "
        f"supported are size {{height, width}}, and size {{shortest_edge}} with a crop_size "
        f"within it"
    )
    raise StageConfigError(message)


def count_image_tokens(processor: Mapping[str, Any], geometry: ImageGeometry, file: Path) -> int:
    """Tokens for one image, as transformers' LlavaProcessor counts them, unless given.

    Raises:
        StageConfigError: neither `num_image_tokens` nor `patch_size` is given.
    """
    if processor.get("num_image_tokens") is not None:
        return int(processor["num_image_tokens"])
    patch_size = _require(processor, "patch_size", file)
    count = (geometry.height // patch_size) * (geometry.width // patch_size)
    count += processor.get("num_additional_image_tokens", 0)
    return count - (processor.get("vision_feature_select_strategy") == "default")


def hash_folder(folder: Path) -> str:
    """xxh3-128 over the names and bytes of a folder's files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in processor_files(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def processor_files(folder: Path) -> list[Path]:
    """The files of a processor folder by name: small texts, not the weights that may lie beside."""
    suffixes = {".json", ".jinja", ".txt", ".model"}
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix in suffixes
        and not path.name.endswith(".index.json")
        and not path.name.startswith(".")
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The mapping in `path`; empty if there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"{path}: no valid JSON ({error})"
        raise StageConfigError(message) from error


def _require(values: Mapping[str, Any], key: str, file: Path) -> Any:
    if values.get(key) is None:
        message = f"{file}: `{key}` is missing"
        raise StageConfigError(message)
    return values[key]
