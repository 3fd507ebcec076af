"""Tokenizer and chat template of a processor folder, checked before use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.preprocess.chat_templates import (
    check_template,
    closes_each_text,
    find_printed_tokens,
    find_template,
)
from pipeline.preprocess.chat_tokenizer import ChatTokenizer
from slurm_jobs.shared.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from slurm_jobs.shared.manifests.messages import Message


# Tokens that structure a conversation and that no text of a row may contain.
#
# In a text, `<|end|>` would become the real token: it would end a turn too early, and could start
# a false one.


_PLAIN = re.compile(r"[\w\s]*")
"""Words, digits and white space, which some tokenizers list as added tokens, and which separate
the tiles of an image."""


def compile_control_tokens(chat: ChatTokenizer, image_tokens: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds a control token in a text.

    Control tokens are the tokens of images and their tiles, the tokenizer's special tokens, and
    its other added tokens that the template prints around answers: some tokenizers do not mark
    `<|user|>` as special. Rows may contain added tokens that occur only in answers, such as
    `<think>`, and single characters, which some tokenizers use as padding (`!`).
    """
    printed = find_printed_tokens(chat)
    tokens = {
        *(t for t in image_tokens if not _PLAIN.fullmatch(t)),
        *(t for t in chat.tokenizer.all_special_tokens if len(t) > 1),
    }
    for token_id, token in chat.tokenizer.added_tokens_decoder.items():
        if (token.special and len(token.content) > 1) or (
            token_id in printed and not _PLAIN.fullmatch(token.content)
        ):
            tokens.add(token.content)
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(re.escape(token) for token in longest_first))


def find_control_token(pattern: re.Pattern[str], message: Message) -> str | None:
    """Return the first control token in a message, including one that two texts form together."""
    texts = (item.value if item.kind == "text" else "\n" for item in message.content)
    match = pattern.search("".join(texts))
    return match.group() if match else None


_NAMED_TOKENS = (
    *("image_token", "fake_image_token", "global_image_token"),
    *("vision_start_token", "vision_end_token"),
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
        raise StageConfigError(message) from error
    if not tokenizer.is_fast:
        message = (
            f"{folder}: {type(tokenizer).__name__} does not map tokens to characters, so labels "
            "could not be placed; use a tokenizer with a `tokenizer.json`"
        )
        raise StageConfigError(message)
    return tokenizer


def named_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return the image tokens that a tokenizer names, by their role."""
    named = {name: getattr(tokenizer, name, None) for name in _NAMED_TOKENS}
    return {name: token for name, token in named.items() if token is not None}


def make_chat_tokenizer(
    tokenizer: PreTrainedTokenizerBase, folder: Path, image_token: str
) -> ChatTokenizer:
    """Check the chat template of a tokenizer from `folder`.

    Raises:
        StageConfigError: no usable template, or no image token.
    """
    tokenizer.chat_template, template_file = find_template(folder, tokenizer)
    image_token_id = tokenizer.convert_tokens_to_ids(image_token)
    if image_token_id is None or image_token_id == tokenizer.unk_token_id:
        message = (
            f"{folder / 'tokenizer.json'}: it has no image token {image_token!r}; set "
            "`image_token` in processor_config.json"
        )
        raise StageConfigError(message)
    chat = ChatTokenizer(
        tokenizer=tokenizer,
        image_token_id=image_token_id,
        pad_token_id=_pad_token_id(tokenizer),
    )
    check_template(chat, template_file)
    return dataclasses.replace(chat, closes_each_text=closes_each_text(chat))


def _pad_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the padding token, else the end token: padding is masked, so any token works."""
    ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(token_id for token_id in ids if token_id is not None)
