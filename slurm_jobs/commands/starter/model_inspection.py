"""Inspection of the model to fine-tune: a folder, or a name on the hub."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError, StageConfigError
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.commands.starter.data_inspection import expanded
from slurm_jobs.commands.starter.starter_facts import Model
from slurm_jobs.formats.configs.stages import ChatTemplateName
from slurm_jobs.formats.processors.anyres_tiles import LlavaNextTiles, LlavaOnevisionTiles
from slurm_jobs.formats.processors.folder import read_processor
from slurm_jobs.formats.processors.gemma_images import Gemma3Images, Gemma4Images
from slurm_jobs.formats.processors.glm_images import GlmImages
from slurm_jobs.formats.processors.image_plans import (
    FixedImages,
    IdeficsTiles,
    ImageRules,
    NativeImages,
)
from slurm_jobs.formats.processors.internvl_tiles import InternVLTiles
from slurm_jobs.formats.processors.model_types import SMALL_VLM
from slurm_jobs.formats.processors.paddleocr_images import PaddleOcrImages
from slurm_jobs.formats.processors.pixtral_images import PixtralImages

_ONEVISION_SIDES = range(384, 2305, 384)
_ONEVISION_GRIDS = tuple(itertools.product(_ONEVISION_SIDES, _ONEVISION_SIDES))
_GRIDS = ((672, 336), (336, 672), (672, 672), (336, 1008), (1008, 336))


def _native(
    *, patch_size: int, pixels: tuple[int, int], rules: type[NativeImages] = NativeImages
) -> NativeImages:
    return rules(
        patch_size=patch_size,
        merge_size=2,
        temporal_patch_size=2,
        min_pixels=pixels[0],
        max_pixels=pixels[1],
        image_token="",
        wrapping=("", ""),
    )


def _pixtral(*, row_marks: tuple[str, str] | None) -> PixtralImages:
    return PixtralImages(
        longest_edge=1540,
        step=28,
        patch_size=14,
        merge_size=2,
        image_token="",
        row_marks=row_marks,
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
    (r"qwen3-vl|qwen3\.[5-9]", _native(patch_size=16, pixels=(65_536, 16_777_216))),
    (
        r"glm-ocr|glm-4\.1v|glm-4\.6v-flash",
        _native(patch_size=14, pixels=(6_272, 4_816_896), rules=GlmImages),
    ),
    (
        r"paddleocr-vl",
        _native(patch_size=14, pixels=(147_384, 2_822_400), rules=PaddleOcrImages),
    ),
    (
        r"mistral-small-3\.[12]|ministral-3-",
        _pixtral(row_marks=("", "")),
    ),
    (r"lightonocr", _pixtral(row_marks=None)),
    (r"smolvlm", _tiles(longest_edge=1536, tile_size=384, num_image_tokens=81)),
    (r"idefics3", _tiles(longest_edge=1456, tile_size=364, num_image_tokens=169)),
    (
        r"internvl.*-hf",
        InternVLTiles(
            tile_size=448,
            min_tiles=1,
            max_tiles=12,
            image_token="",
            start_token="",
            end_token="",
            num_image_tokens=256,
        ),
    ),
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
        r"llava-onevision-qwen2",
        LlavaOnevisionTiles(
            tile_size=384,
            grids=_ONEVISION_GRIDS,
            num_image_tokens=729,
            max_tiles=9,
            drops_first_token=False,
            background=(127, 127, 127),
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
_HUB_TEMPLATES: tuple[tuple[str, ChatTemplateName], ...] = (
    (r"llava-v?1\.5|llava-v1\.6-vicuna", "llava-1.5"),
    (r"llava-v1\.6-mistral", "llava-next-mistral"),
    (r"qwen3\.[5-9]", "qwen3.5"),
    (r"glm-ocr|glm-4\.1v", "glm-4v"),
    (r"glm-4\.6v", "glm-4.6v"),
)
"""Published models by their names on the hub whose own template cannot be trained with."""
_GLM_TEMPLATES: Mapping[str, ChatTemplateName] = {
    "glm4v": "glm-4v",
    "glm_ocr": "glm-4v",
    "glm46v": "glm-4.6v",
}
"""Templates of GLM by the type of the model."""
_LLAVA_TEMPLATES: Mapping[str, ChatTemplateName] = {
    "llama": "llava-1.5",
    "mistral": "llava-next-mistral",
}
"""Templates of LLaVA 1.5 and LLaVA-NeXT by the type of their language model."""
_HUB_URL = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+).*")
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
    if url := _HUB_URL.fullmatch(name.strip()):
        name = as_named = url[1]
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
            chat_template=_template_for(folder, values) if isinstance(values, dict) else None,
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
    templates = (kind for words, kind in _HUB_TEMPLATES if re.search(words, name.lower()))
    return Model(
        name=name,
        is_on_hub=True,
        weights_gb=2 * float(match[1]) if match else None,
        chat_template=next(templates, None),
    )


def _template_for(folder: Path, values: Mapping[str, Any]) -> ChatTemplateName | None:
    """Return the replacement of a model's template; None if its own can be trained with."""
    kind = str(values.get("model_type"))
    if kind in _GLM_TEMPLATES:
        marks_answers = any("endgeneration" in text for text in _templates_in(folder))
        return None if marks_answers else _GLM_TEMPLATES[kind]
    if kind.startswith("qwen3_5"):
        return "qwen3.5" if any("<think>" in text for text in _templates_in(folder)) else None
    language = values.get("text_config")
    if kind not in {"llava", "llava_next"} or not isinstance(language, dict):
        return None
    if any(end in template for template in _templates_in(folder) for end in ("eos_token", "</s>")):
        return None
    return _LLAVA_TEMPLATES.get(str(language.get("model_type")))


def _templates_in(folder: Path) -> Iterator[str]:
    """Yield the chat templates of a folder, wherever transformers has stored them."""
    with suppress(OSError):
        yield read_bytes(folder / "chat_template.jinja").decode(errors="replace")
    for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
        with suppress(OSError, ValueError, RecursionError):
            values = json.loads(read_bytes(folder / name))
            if isinstance(values, dict):
                yield str(values.get("chat_template") or "")


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
