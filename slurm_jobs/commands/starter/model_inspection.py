"""Inspection of the model to fine-tune: a folder, or a name on the hub."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import InputError, StageConfigError
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.commands.starter.data_inspection import expanded
from slurm_jobs.commands.starter.starter_facts import Model
from slurm_jobs.formats.processors.folder import read_processor
from slurm_jobs.formats.processors.gemma_images import Gemma3Images, Gemma4Images
from slurm_jobs.formats.processors.image_plans import (
    FixedImages,
    IdeficsTiles,
    ImageRules,
    LlavaNextTiles,
    NativeImages,
)
from slurm_jobs.formats.processors.model_types import SMALL_VLM

_GRIDS = ((672, 336), (336, 672), (672, 672), (336, 1008), (1008, 336))


def _native(*, patch_size: int, pixels: tuple[int, int]) -> NativeImages:
    return NativeImages(
        patch_size=patch_size,
        merge_size=2,
        temporal_patch_size=2,
        min_pixels=pixels[0],
        max_pixels=pixels[1],
        image_token="",
        wrapping=("", ""),
    )


def _tiles(*, longest_edge: int, tile_size: int, num_image_tokens: int) -> IdeficsTiles:
    return IdeficsTiles(
        longest_edge=longest_edge,
        tile_size=tile_size,
        split=True,
        image_token="",
        fake_token="",
        global_token="",
        num_image_tokens=num_image_tokens,
    )


_HUB_RULES: tuple[tuple[str, ImageRules], ...] = (
    (r"qwen2(\.5)?-vl", _native(patch_size=14, pixels=(3_136, 12_845_056))),
    (r"qwen3-vl", _native(patch_size=16, pixels=(65_536, 16_777_216))),
    (r"smolvlm", _tiles(longest_edge=1536, tile_size=384, num_image_tokens=81)),
    (r"idefics3", _tiles(longest_edge=1456, tile_size=364, num_image_tokens=169)),
    (
        r"llava-(v1\.6|next)",
        LlavaNextTiles(
            tile_size=336,
            grids=_GRIDS,
            patch_size=14,
            num_additional_tokens=1,
            drops_first_token=True,
            image_token="",
        ),
    ),
    (
        r"llava-v?1\.5",
        FixedImages(height=336, width=336, shortest_edge=336, image_token="", num_image_tokens=576),
    ),
    (
        r"gemma-3-|medgemma-",
        Gemma3Images(
            height=896,
            width=896,
            shortest_edge=None,
            image_token="",
            wrapping=("", ""),
            num_image_tokens=256,
        ),
    ),
    (
        r"gemma-4-",
        Gemma4Images(patch_size=16, merge_size=3, max_tokens=280, image_token="", marks=("", "")),
    ),
)
"""Image limits of published models by their names on the hub, from their processors."""
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_BILLIONS = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")
DEFAULT_MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
"""A single GPU of 16 GB holds it with LoRA, and the tests train its family."""


def inspect_weights(name: str, *, as_named: str) -> Model:
    """Return what kind of name it is, and the size of the weights.

    `as_named` is the same path in the spec.

    Raises:
        InputError: neither a folder with `config.json` nor a name on the hub.
    """
    folder = expanded(Path(name))
    if (folder / "config.json").is_file():
        values = None
        with suppress(OSError, ValueError, RecursionError):
            values = json.loads(read_bytes(folder / "config.json"))
        model_type = values.get("model_type") if isinstance(values, dict) else None
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return Model(
            name=as_named,
            is_on_hub=False,
            weights_gb=size / 1e9 if size else None,
            is_small_vlm=model_type == SMALL_VLM,
        )
    if folder.is_dir():
        message = (
            f"{folder} has no config.json: name the folder of a model as `from_pretrained` takes it"
        )
        raise InputError(message)
    if not _ON_HUB.fullmatch(name):
        message = f"{name}: neither a folder nor a name on the hub (OWNER/NAME)"
        raise InputError(message)
    match = _BILLIONS.search(name)
    return Model(name=name, is_on_hub=True, weights_gb=2 * float(match[1]) if match else None)


def hub_note(name: str) -> str:
    """Return the note on a name that may also be meant as a folder."""
    return f"there is no folder {name} here, so it is taken as a name on the Hugging Face hub"


def image_rules(name: str) -> ImageRules | None:
    """Return what a model's processor makes of images; None where that is not known.

    The name is a folder, or a model on the hub, of which some are known.
    """
    folder = expanded(Path(name))
    if not folder.is_dir():
        matching = (rules for words, rules in _HUB_RULES if re.search(words, name.lower()))
        return next(matching, None)
    try:
        return read_processor(folder).images
    except (StageConfigError, OSError):  # `check` reports what is wrong with it
        return None
