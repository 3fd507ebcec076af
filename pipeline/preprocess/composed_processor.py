"""Processor composed from the folders of a small model's parts, such as SigLIP and Qwen2.5.

It is written as an ordinary folder, so that all later steps read one folder: the first folder's
image processor, the second folder's tokenizer, and a chat template with a slot for images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.preprocess.chat.chat_templates import read_text
from pipeline.preprocess.chat.chatml import (
    TURN_TOKENS,
    find_difference,
    find_system_prompt,
    make_chatml,
)
from pipeline.preprocess.chat.end_token import END_TOKEN_FILES, with_end_token
from pipeline.preprocess.processor_folders import write_folder
from slurm_jobs.base.errors import StageDataError
from slurm_jobs.base.files import dump_json
from slurm_jobs.formats.configs.stages import ComposedProcessor
from slurm_jobs.formats.processors.folder import (
    check_folder,
    find_images,
    read_folder_json,
    read_processor,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model"),
)
SIGLIP_DEFAULTS: Mapping[str, int] = {"image_size": 224, "patch_size": 16}
"""Defaults of transformers' SiglipVisionConfig: folders on hubs leave out default values."""
_MOST_TOKENS = 8
"""Number of tokens named in a message."""


def write_composed(
    parts: ComposedProcessor, tokenizer: PreTrainedTokenizerBase, root: Path
) -> Path:
    """Write the processor into a folder of `root` named by its content, and return it.

    So array tasks that write it at the same time write the same bytes.

    Args:
        parts: Source folders.
        tokenizer: Loaded from `parts.text`.
        root: Folder for processors.

    Raises:
        StageConfigError: a folder lacks something, or the two do not fit together.
    """
    side, patch_size = _read_encoder(Path(parts.images))
    described = {
        "processor_class": "LlavaProcessor",
        "image_token": parts.image_token,
        "patch_size": patch_size,
        "vision_feature_select_strategy": "full",
    }
    files = {
        "preprocessor_config.json": dump_json(_read_images(Path(parts.images))).encode(),
        "processor_config.json": dump_json(described).encode(),
        "chat_template.jinja": _make_template(parts, tokenizer).encode(),
        **_tokenizer_files(parts),
    }
    folder = write_folder(files, root)
    _check_size(folder, parts, side)
    return folder


def _read_encoder(folder: Path) -> tuple[int, int]:
    """Read the side of an image and of a patch in pixels from a SigLIP's config.json."""
    check_folder(folder)
    file = folder / "config.json"
    values = read_folder_json(file)
    kind, vision = values.get("model_type"), values
    if kind == "siglip":
        vision = values.get("vision_config") or {}
    elif kind != "siglip_vision_model":
        more = " (flexible resolution)" if str(kind).startswith("siglip2") else ""
        message = (
            f"{file}: model_type is {kind!r}{more}; processor.images is the folder of a SigLIP, or "
            f"of a SigLIP 2 of fixed resolution, whose config.json has the size of patches"
        )
        raise StageDataError(message)
    sizes = {name: vision.get(name, default) for name, default in SIGLIP_DEFAULTS.items()}
    for name, value in sizes.items():
        if not isinstance(value, int):
            message = f"{file}: {name} is {value!r}, expected a whole number"
            raise StageDataError(message)
    return sizes["image_size"], sizes["patch_size"]


def _read_images(folder: Path) -> Mapping[str, Any]:
    """Read the image processor's values, from any of its files."""
    file = folder / "processor_config.json"
    images, _ = find_images(read_folder_json(file), file)
    return {name: value for name, value in images.items() if name != "processor_class"}


def _check_size(folder: Path, parts: ComposedProcessor, side: int) -> None:
    inputs = read_processor(folder).images.model_inputs()
    if (inputs["image_height"], inputs["image_width"]) != (side, side):
        message = (
            f"{parts.images}: its image processor makes pictures of {inputs['image_width']} x "
            f"{inputs['image_height']} pixels, and the encoder of config.json takes "
            f"{side} x {side}; set `size` in its preprocessor_config.json to that"
        )
        raise StageDataError(message)


def _tokenizer_files(parts: ComposedProcessor) -> dict[str, bytes]:
    folder = Path(parts.text)
    files = {n: (folder / n).read_bytes() for n in _TOKENIZER_FILES if (folder / n).is_file()}
    if parts.template is None:
        # Base models name the token that ends texts.
        for name in END_TOKEN_FILES:
            if name in files:
                files[name] = with_end_token(files[name], TURN_TOKENS[1])
    return files


def _make_template(parts: ComposedProcessor, tokenizer: PreTrainedTokenizerBase) -> str:
    _check_token(tokenizer, parts.image_token, parts, "set processor.image_token to one that has")
    if parts.template is not None:
        return read_text(Path(parts.template))
    for token in TURN_TOKENS:
        _check_token(tokenizer, token, parts, "turns are not ChatML: give processor.template")
    published = _own_template(tokenizer)
    if published is None:
        return make_chatml(parts.image_token, None)
    special_tokens = tokenizer.special_tokens_map
    template = make_chatml(parts.image_token, find_system_prompt(published, special_tokens))
    difference = find_difference(published, template, special_tokens)
    if difference is None:
        return template
    message = (
        f"{parts.text}: its chat template is not ChatML as in Qwen2.5 ({difference}); set "
        f"processor.template to that template with {parts.image_token} in place of images"
    )
    raise StageDataError(message)


def _own_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    template = tokenizer.chat_template
    if isinstance(template, Mapping):  # several, by name
        template = template.get("default")
    return template and template.removeprefix("\ufeff")


def _check_token(
    tokenizer: PreTrainedTokenizerBase, token: str, parts: ComposedProcessor, remedy: str
) -> None:
    if tokenizer.convert_tokens_to_ids(token) not in (None, tokenizer.unk_token_id):
        return
    known = sorted(added.content for added in tokenizer.added_tokens_decoder.values())
    more = f" and {len(known) - _MOST_TOKENS} more" if len(known) > _MOST_TOKENS else ""
    message = (
        f"{parts.text}: {token!r} is not a token of its tokenizer; {remedy} (its added tokens: "
        f"{', '.join(known[:_MOST_TOKENS])}{more})"
    )
    raise StageDataError(message)
