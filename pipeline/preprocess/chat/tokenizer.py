"""Tokenizer and chat template of a processor folder, checked before use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pipeline.preprocess.chat.chat_templates import find_template
from pipeline.preprocess.chat.chat_tokenizer import ChatTokenizer, ImageText
from pipeline.preprocess.chat.template_checks import check_template, closes_each_text
from slurm_jobs.base.errors import StageDataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_NAMED_TOKENS = (
    *("image_token", "fake_image_token", "global_image_token"),
    *("vision_start_token", "vision_end_token", "boi_token", "eoi_token"),
    *("context_image_token", "start_image_token", "end_image_token"),
)
"""Attributes under which transformers' processors look up a tokenizer's image tokens."""


def load_chat_tokenizer(folder: Path, image_token: str) -> ChatTokenizer:
    """Load the tokenizer of a processor folder and check its chat template.

    Raises:
        StageConfigError: no tokenizer, no usable template, or no image token.
    """
    return make_chat_tokenizer(load_tokenizer(folder), folder, image_token)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a processor folder.

    Raises:
        StageConfigError: there is none, or it does not map tokens to characters.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last three come from JSON files that are not a tokenizer.
        message = f"{folder}: no tokenizer can be loaded from it ({type(error).__name__}: {error})"
        raise StageDataError(message) from error
    if not tokenizer.is_fast:
        message = (
            f"{folder}: {type(tokenizer).__name__} does not map tokens to characters, so labels "
            "could not be placed; use a tokenizer with a `tokenizer.json`"
        )
        raise StageDataError(message)
    return tokenizer


def named_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return the image tokens that a tokenizer names, by their role."""
    named = {name: getattr(tokenizer, name, None) for name in _NAMED_TOKENS}
    return {name: token for name, token in named.items() if token is not None}


def make_chat_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    image_token: str,
    image_text: ImageText | None = None,
) -> ChatTokenizer:
    """Check the chat template of a tokenizer from `folder`.

    Args:
        tokenizer: Tokenizer.
        folder: Its folder.
        image_token: Token that stands for an image before the placeholder replaces it.
        image_text: Text in which that token stands; None if the template prints the token alone.

    Raises:
        StageConfigError: no usable template, or no image token.
    """
    tokenizer.chat_template, template_file = find_template(folder, tokenizer)
    # A list only for several tokens.
    image_token_id = cast("int | None", tokenizer.convert_tokens_to_ids(image_token))
    if image_token_id is None or image_token_id == tokenizer.unk_token_id:
        message = (
            f"{folder / 'tokenizer.json'}: it has no image token {image_token!r}; set "
            "`image_token` in processor_config.json"
        )
        raise StageDataError(message)
    chat = ChatTokenizer(
        tokenizer=tokenizer,
        image_token_id=image_token_id,
        pad_token_id=_pad_token_id(tokenizer),
        image_text=image_text,
    )
    check_template(chat, template_file)
    return dataclasses.replace(chat, closes_each_text=closes_each_text(chat))


def _pad_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the padding token, else the end token: padding is masked, so any token works."""
    ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(token_id for token_id in ids if token_id is not None)
